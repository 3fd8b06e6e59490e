"""HTTP/1.1 for one engine: asyncio callbacks on httptools, with hands on the wire so that it can also
misbehave.

Idle connections are kept `idle` seconds (5, as vLLM does), and a client that closes, also only its sending
side, is gone at once (engines §1.3, §1.9).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import httptools
import msgspec

Header = tuple[str, str]


@dataclass(slots=True)
class Request:
    """One request, complete. Header names are lower case; of repeated ones the last counts."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    version: str = "1.1"
    keep_alive: bool = True

    @property
    def path(self) -> str:
        """The path without the query."""
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters."""
        return dict(parse_qsl(urlsplit(self.target).query))


class Exchange:
    """The answer to one request. After `end`, `reset` or the client's leaving, writing does nothing."""

    def __init__(self, connection: Connection, request: Request) -> None:
        self._connection: Connection | None = connection
        self._chunked = False
        self.request = request
        self.started = False
        self.on_gone: Callable[[], None] | None = None   # the client left before the end
        self.on_end: Callable[[], None] | None = None    # the answer is over, however it ended

    @property
    def open(self) -> bool:
        """The client is there and waits for more."""
        return self._connection is not None

    def reply(self, status: int, body: bytes, kind: str, headers: Sequence[Header] = ()) -> None:
        """A whole answer."""
        self.head(status, kind, [*headers, ("Content-Length", str(len(body)))])
        self._write(body)
        self.end()

    def json(self, status: int, value: Any, headers: Sequence[Header] = ()) -> None:
        """A whole answer as JSON."""
        self.reply(status, msgspec.json.encode(value), "application/json", headers)

    def head(self, status: int, kind: str, headers: Sequence[Header] = ()) -> None:
        """Begin an answer; without a Content-Length it is chunked, or ends with the connection for
        HTTP/1.0."""
        self.started = True
        lines = [f"HTTP/1.1 {status} {_phrase(status)}", f"Content-Type: {kind}"] if kind else [
            f"HTTP/1.1 {status} {_phrase(status)}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if not any(name.lower() == "content-length" for name, _ in headers):
            self._chunked = self.request.version == "1.1"
            self.request.keep_alive = self.request.keep_alive and self._chunked
            lines += ["Transfer-Encoding: chunked"] if self._chunked else []
        if not self.request.keep_alive:
            lines.append("Connection: close")
        self._write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def send(self, data: bytes) -> None:
        """A piece of a streamed body."""
        if data:
            self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def raw(self, data: bytes) -> None:
        """Bytes as they are, for faults."""
        self._write(data)

    def end(self) -> None:
        """The answer is complete."""
        if self._chunked:
            self._write(b"0\r\n\r\n")
        connection = self._release()
        if connection is not None:
            connection.answered(self.request.keep_alive)

    def reset(self) -> None:
        """Drop the connection with a TCP reset, whatever was sent."""
        connection = self._release()
        if connection is not None:
            connection.reset()

    def close(self) -> None:
        """Close the connection politely in the middle of things."""
        connection = self._release()
        if connection is not None:
            connection.close()

    def gone(self) -> None:
        """The client left: tell whoever works on the answer."""
        self._release()
        if self.on_gone is not None:
            self.on_gone()

    def _release(self) -> Connection | None:
        connection, self._connection = self._connection, None
        if connection is not None and self.on_end is not None:
            self.on_end()
        return connection

    def _write(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.write(data)


Handler = Callable[[Exchange], None]


@dataclass(slots=True)
class Server:
    """What all connections share: who answers, how long an idle one is kept, and counts for tests."""

    handler: Handler
    idle: float = 5.0
    connections: set[Connection] = field(default_factory=set)
    accepted: int = 0
    left_early: int = 0      # clients that went before their answer was complete

    def stats(self) -> dict[str, int]:
        """The counts, and how many are connected now."""
        return {"connections": len(self.connections), "accepted": self.accepted,
                "left_early": self.left_early}

    def close_all(self) -> None:
        """Close every connection."""
        for connection in list(self.connections):
            connection.close()


class Connection(asyncio.Protocol):
    """One client's connection: requests one after the other, pipelined ones wait their turn."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Request] = deque()
        self._exchange: Exchange | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._fresh()

    # ── asyncio's side ───────────────────────────────────────────────────────────────────────────────
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._server.connections.add(self)
        self._server.accepted += 1
        self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by whichever side."""
        self._server.connections.discard(self)
        self._wake()
        self._queue.clear()
        exchange, self._exchange = self._exchange, None
        if exchange is not None and exchange.open:
            self._server.left_early += 1
            exchange.gone()

    def eof_received(self) -> bool:
        """A half-close counts as leaving, as in vLLM (engines §1.9)."""
        return False

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.close()
        except httptools.HttpParserError:
            self.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 29\r\nConnection: close\r\n\r\n"
                       b"Invalid HTTP request received")
            self.close()

    # ── httptools' side ──────────────────────────────────────────────────────────────────────────────
    def on_message_begin(self) -> None:
        """A request begins."""
        self._fresh()
        self._wake()

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is there; whoever asked for it is told to send the body."""
        if self._headers.get("expect", "").lower() == "100-continue":
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The request is there."""
        parser = self._parser
        request = Request(
            parser.get_method().decode("latin-1"), self._target.decode("latin-1"), self._headers,
            b"".join(self._body), parser.get_http_version(), parser.should_keep_alive(),
        )
        self._queue.append(request)
        if self._exchange is None:
            self._next()

    # ── the exchange's side ──────────────────────────────────────────────────────────────────────────
    def write(self, data: bytes) -> None:
        """Bytes for the client."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def answered(self, keep_alive: bool) -> None:
        """The answer in work is complete."""
        self._exchange = None
        if not keep_alive:
            self.close()
        elif self._queue:
            asyncio.get_running_loop().call_soon(self._next)
        else:
            self._rest()

    def close(self) -> None:
        """Close after what was written."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """Close with a reset: the client sees its connection break."""
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            with contextlib.suppress(OSError, AttributeError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # What was written just now leaves at the end of this turn of the loop.
            asyncio.get_running_loop().call_later(0.002, self._transport.abort)

    def _next(self) -> None:
        if self._queue and self._exchange is None:
            self._exchange = Exchange(self, self._queue.popleft())
            self._server.handler(self._exchange)

    def _fresh(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    def _rest(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._server.idle, self.close)

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"

