"""A target of streams that do not step together: `python -m bench.stream_target`.

It listens on a port of 127.0.0.1, prints it, and serves until its standard input closes. Each stream has one event
every 10 ms from the moment it was asked for, as many as `max_tokens` says, then usage and an end. Streams of one engine
step together, those of many engines behind a router do not; a load generator that reads events one by one is best
tried with the latter.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import cast

import uvloop

STEP = 0.01
CARD = json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}).encode()
MODELS = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(CARD), CARD)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ASKED = re.compile(rb'"max(?:_completion)?_tokens": ?(\d+)')
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def event(choices: list[dict[str, object]], **more: object) -> bytes:
    """One server-sent event as a chunk of the transfer."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    told = {**head, "choices": choices, **more}
    data = b"data: " + json.dumps(told).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


TOKEN = event([{"index": 0, "delta": {"content": " word"}, "finish_reason": None}])
LAST = event([{"index": 0, "delta": {}, "finish_reason": "stop"}])
DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Stream(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It begins."""
        self.transport = cast("asyncio.Transport", transport)
        self.loop = asyncio.get_running_loop()
        self.received = bytearray()

    def data_received(self, data: bytes) -> None:
        """Answer once the request is whole."""
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        length = LENGTH.search(self.received, 0, end) if end >= 0 else None
        if end < 0 or len(self.received) < end + 4 + (int(length[1]) if length else 0):
            return
        asked = ASKED.search(self.received)
        self.tokens = int(asked[1]) if asked else 64
        if self.received.startswith(b"GET"):
            self.transport.write(MODELS)
        else:
            self.transport.write(HEAD)
            self.left, self.due = self.tokens, self.loop.time() + STEP
            self.loop.call_at(self.due, self.step)
        self.received.clear()

    def step(self) -> None:
        """One event; after the last one, usage and the end."""
        if self.transport.is_closing():
            return
        self.left -= 1
        if self.left > 0:
            self.transport.write(TOKEN)
            self.due += STEP
            self.loop.call_at(self.due, self.step)
        else:
            usage = {"prompt_tokens": 100, "completion_tokens": self.tokens, "total_tokens": 100 + self.tokens}
            self.transport.write(TOKEN + LAST + event([], usage=usage) + DONE)


async def serve() -> None:
    """Listen on a free port, say which, and go on until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Stream, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    uvloop.run(serve())
