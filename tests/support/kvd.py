"""A stand-in for the cache daemon: records every byte, greets as it is told to."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

ACK = {"op": "hello_ack", "server_id": "stand-in", "protocol_version": 1, "shared_arena": None}


def frame(message: object) -> bytes:
    """Four bytes of length, big end first, then msgpack."""
    body = msgspec.msgpack.encode(message)
    return struct.pack(">I", len(body)) + body


@dataclass
class Daemon:
    """`heard` are the bytes of each connection; `greeting` is sent after the first frame, None keeps silent."""

    path: Path
    greeting: bytes | None = frame(ACK)
    heard: list[bytearray] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = bytearray()
        self.heard.append(said)
        greeted = False
        while data := await reader.read(65536):
            said += data
            if not greeted and self.greeting is not None and len(said) >= 4 + int.from_bytes(said[:4], "big"):
                greeted = True
                writer.write(self.greeting)
        writer.close()
        self.closed.set()


@asynccontextmanager
async def running(path: Path, greeting: bytes | None = frame(ACK)) -> AsyncIterator[Daemon]:
    """A daemon that listens at `path`."""
    daemon = Daemon(path, greeting)
    server = await asyncio.start_unix_server(daemon.serve, str(path))
    try:
        yield daemon
    finally:
        server.close()
        await server.wait_closed()
