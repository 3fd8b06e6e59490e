"""The load: raw HTTP/1.1 clients on one uvloop, cheap enough to share a core with the upstreams."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, cast

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
LAST_CHUNK = b"0\r\n\r\n"
_PATIENCE = 60  # seconds until streams must have begun


@dataclass(frozen=True)
class Traffic:
    """What to send: `prompt` bytes of text, `events` > 0 for a stream of that many, the ids of `sessions`
    sessions in turn (0: none)."""

    prompt: int
    sessions: int = 0
    events: int = 0
    paced: bool = False

    def requests(self) -> Iterator[bytes]:
        """Endless requests, ready to write."""
        body = self._body()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        tail = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        if not self.sessions:
            return cycle([head + tail])
        return cycle([b"%bX-Session-Id: bench-%d\r\n%b" % (head, n, tail) for n in range(self.sessions)])

    def _body(self) -> bytes:
        tokens = self.events or 64
        document: dict[str, Any] = {"model": "m", "max_tokens": tokens, "stream": bool(self.events)}
        text = ("paced " if self.paced else "") + "lorem ipsum dolor sit amet " * (self.prompt // 27 + 1)
        document["messages"] = [{"role": "user", "content": text[: self.prompt]}]
        return json.dumps(document, separators=(",", ":")).encode()


@dataclass
class Tally:
    """What came of it; latencies are seconds."""

    done: int = 0
    failed: int = 0
    reads: int = 0
    elapsed: float = 0.0
    latencies: list[float] = field(default_factory=list)


class Client(asyncio.Protocol):
    """One keep-alive connection; `on_done(client, good)` is called after each whole answer."""

    def __init__(self, on_done: Callable[[Client, bool], None], tally: Tally) -> None:
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.on_done = on_done
        self.tally = tally
        self.sent = 0.0
        self.busy = False
        self.good = False
        self.left: int | None = None  # body bytes to come; -1: until the last chunk; None: no head yet
        self.seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """An answer that ends so is not whole."""
        if self.busy:
            self.busy = False
            self.on_done(self, False)

    def send(self, request: bytes) -> None:
        """Write one request; its answer ends in `on_done`."""
        self.busy, self.left, self.seen = True, None, b""
        self.sent = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Look for the end of the answer, and for nothing else."""
        self.tally.reads += 1
        if self.left is None:
            data = self.seen + data if self.seen else data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self.seen = data
                return
            length = LENGTH.search(data, 0, end)
            self.good = data.startswith(b"HTTP/1.1 200")
            self.left = int(length[1]) if length else -1
            data, self.seen = data[end + 4 :], b""
        if self.left >= 0:
            self.left -= len(data)
            if self.left > 0:
                return
        else:
            self.seen = (self.seen + data[-len(LAST_CHUNK) :])[-len(LAST_CHUNK) :]
            if self.seen != LAST_CHUNK:
                return
        self.busy = False
        self.on_done(self, self.good)


async def connect(port: int, on_done: Callable[[Client, bool], None], tally: Tally) -> Client:
    """A fresh connection to 127.0.0.1:`port`."""
    loop = asyncio.get_running_loop()
    _transport, client = await loop.create_connection(lambda: Client(on_done, tally), "127.0.0.1", port)
    return client


async def closed_loop(
    port: int, traffic: Traffic, *, connections: int, seconds: float = 0.0, count: int = 0
) -> Tally:
    """`connections` clients that send as soon as they are answered, for `seconds` or until `count` are sent.

    A client whose connection breaks counts one failure and opens another.
    """
    tally, requests = Tally(), traffic.requests()
    loop = asyncio.get_running_loop()
    over, working = loop.create_future(), connections
    started = time.perf_counter()
    deadline = started + seconds if seconds else float("inf")
    sent = connections

    def finished(client: Client, good: bool) -> None:
        nonlocal sent, working
        if good:
            tally.done += 1
        else:
            tally.failed += 1
        if (count and sent >= count) or time.perf_counter() >= deadline:
            working -= 1
            client.transport.close()
            if not working:
                over.set_result(None)
            return
        sent += 1
        if client.transport.is_closing():
            renewals.add(task := loop.create_task(renew()))
            task.add_done_callback(renewals.discard)
        else:
            client.send(next(requests))

    async def renew() -> None:
        (await connect(port, finished, tally)).send(next(requests))

    renewals: set[asyncio.Task[None]] = set()
    for client in [await connect(port, finished, tally) for _ in range(connections)]:
        client.send(next(requests))
    await over
    tally.elapsed = time.perf_counter() - started
    return tally


async def paced(port: int, traffic: Traffic, *, rate: float, seconds: float) -> Tally:
    """`rate` requests a second at even gaps, each on an idle connection; latencies are to the last byte."""
    tally, requests = Tally(), traffic.requests()
    idle: list[Client] = []
    count = int(rate * seconds)
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def finished(client: Client, good: bool) -> None:
        tally.latencies.append(time.perf_counter() - client.sent)
        if good:
            tally.done += 1
            idle.append(client)
        else:
            tally.failed += 1
        if tally.done + tally.failed == count:
            over.set_result(None)

    begin = loop.time()
    for n in range(count):
        await asyncio.sleep(max(begin + n / rate - loop.time(), 0))
        client = idle.pop() if idle else await connect(port, finished, tally)
        client.send(next(requests))
    await over
    for client in idle:
        client.transport.close()
    return tally


class SlowReader(Client):
    """Stops reading after each read, until told to go on."""

    def data_received(self, data: bytes) -> None:
        """Take this much, and no more for now."""
        super().data_received(data)
        self.transport.pause_reading()

    def go_on(self) -> None:
        """Take one read more."""
        if not self.transport.is_closing() and not self.transport.is_reading():
            self.transport.resume_reading()


async def hold_streams(
    port: int, traffic: Traffic, *, streams: int, seconds: float, each_second: Callable[[], None]
) -> Tally:
    """Open `streams` streams, read a little of each once a second, and drop them `seconds` after all have begun.

    `done` counts those that began to answer.
    """
    tally, requests = Tally(), traffic.requests()
    loop = asyncio.get_running_loop()
    clients: list[SlowReader] = []
    for _ in range(streams):
        _transport, client = await loop.create_connection(
            lambda: SlowReader(lambda _client, _good: None, tally), "127.0.0.1", port
        )
        client.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        client.send(next(requests))
        clients.append(client)
        await asyncio.sleep(0.002)
    elapsed = held = 0
    while held < seconds and elapsed < _PATIENCE:
        await asyncio.sleep(1)
        each_second()
        for client in clients:
            client.go_on()
        elapsed += 1
        held += all(client.left is not None for client in clients)
    tally.done = sum(client.busy and client.left is not None and client.good for client in clients)
    tally.failed = streams - tally.done
    for client in clients:
        client.transport.abort()
    return tally
