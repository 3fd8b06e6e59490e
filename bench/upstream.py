"""A stand-in for many engines in one process, cheap enough not to be what is measured.

`python -m bench.upstream COUNT` listens on COUNT ports of 127.0.0.1, prints them as a JSON list, and serves
until its standard input closes. What it answers is told by the request body, since routers may drop headers:
`"stream":true` asks for events, `"max_tokens":N` for how many, `paced` for one per step instead of at once.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import cast

import uvloop

STEP = 0.01  # seconds between the tokens of a paced stream; all streams step together, as in an engine
CARD = {"id": "m", "object": "model", "created": 1, "owned_by": "bench", "root": "m", "max_model_len": 65536}
INFO = {"object": "list", "data": [CARD], "model_path": "m", "served_model_name": "m"}
ANSWER = {
    "id": "chatcmpl-0123456789abcdef",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "word " * 64}, "finish_reason": "stop"},
    ],
    "usage": {"prompt_tokens": 400, "completion_tokens": 64, "total_tokens": 464},
}
TOKEN = {
    "id": "chatcmpl-0123456789abcdef",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": None}],
}


def _reply(document: object) -> bytes:
    body = json.dumps(document).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


UNARY = _reply(ANSWER)
INFORMATION = _reply(INFO)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = _chunk(b"data: " + json.dumps(TOKEN).encode() + b"\n\n")
LAST = _chunk(b"data: " + json.dumps(TOKEN).replace("null", '"stop"').encode() + b"\n\n")
STREAM_END = _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
MAX_TOKENS = re.compile(rb'"max_tokens": ?(\d+)')
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Engine(asyncio.Protocol):
    """One connection of a router."""

    stepping: set[Engine] = set()  # noqa: RUF012 - shared by all connections: the engine's batch

    def __init__(self) -> None:
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.received = bytearray()
        self.left = 0
        self.writable = True
        self.waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop generating: the reader is gone."""
        self.left = 0
        self.stepping.discard(self)

    def pause_writing(self) -> None:
        """The reader is slow: generate no further."""
        self.writable = False

    def resume_writing(self) -> None:
        """Go on where the slow reader stopped us."""
        self.writable = True
        if self.waiting:
            self.waiting = False
            self._generate()

    def data_received(self, data: bytes) -> None:
        """Answer once the request is whole."""
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return
        length = LENGTH.search(self.received, 0, end)
        if length:
            complete = len(self.received) >= end + 4 + int(length[1])
        else:
            complete = self.received.startswith(b"GET") or self.received.endswith(b"0\r\n\r\n")
        if complete:
            request = bytes(self.received)
            self.received.clear()
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        if request.startswith(b"GET"):
            self.transport.write(INFORMATION)
        elif b'"stream":true' not in request and b'"stream": true' not in request:
            self.transport.write(UNARY)
        else:
            asked = MAX_TOKENS.search(request)
            self.left = int(asked[1]) - 1 if asked else 64
            self.transport.write(STREAM_HEAD)
            if b"paced" in request:
                self.stepping.add(self)
            else:
                self._generate()

    def _generate(self) -> None:
        """The next event at once, in a write of its own."""
        if self.left <= 0 or self.transport.is_closing():
            return
        if not self.writable:
            self.waiting = True
            return
        self.step()
        asyncio.get_running_loop().call_soon(self._generate)

    def step(self) -> None:
        """One event more; the last one ends the stream."""
        self.left -= 1
        if self.left > 0:
            self.transport.write(EVENT)
        else:
            self.stepping.discard(self)
            self.transport.write(LAST + STREAM_END)


async def _step_all() -> None:
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        due += STEP
        await asyncio.sleep(max(due - loop.time(), 0))
        for engine in list(Engine.stepping):
            if engine.writable:
                engine.step()


async def serve(count: int) -> None:
    """Listen on `count` ports, say which, and go on until standard input ends."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(Engine, "127.0.0.1", 0, backlog=4096) for _ in range(count)]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    stepper = asyncio.create_task(_step_all())
    await loop.run_in_executor(None, sys.stdin.read)
    stepper.cancel()
    for server in servers:
        server.close()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
