"""HTTP/1.1 connections to engines: pooled, really reused, parsed by callbacks (design.md §3).

A `Connection` serves one `Receiver` at a time. What it reads is handed over once per event-loop read; what goes
wrong is named by what it allows (style.md 11): nothing was sent, sent but unanswered, already answering.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, cast

import httptools

from infera_cli.gateway.upstream.head import Heads
from infera_cli.gateway.upstream.nonsense import words_of
from infera_cli.gateway.upstream.receiver import Receiver, Sink
from infera_cli.protocol.chunks import size_of_one_chunk
from infera_cli.protocol.headers import AnswerHead, Headers
from infera_cli.protocol.repeat import Repeat
from infera_cli.routing.types import Worker, WorkerSpec

_JOINED_BELOW: Final = 64 << 10
"""Copying a small body behind its head is cheaper than handing over two buffers."""

_MOST_IN_VAIN: Final = 256 << 10
"""Bytes; the parser gathers a field until it ends, and takes longer for each piece the longer it is."""

LENGTH, CHUNKED, UNTIL_CLOSE, EMPTY = "length", "chunked", "until_close", "empty"


_NO_HEAD: Final = AnswerHead([])


class Connection(asyncio.Protocol):
    """One connection to one worker."""

    __slots__ = (
        "_aligned", "_between_chunks", "_closed", "_done", "_fresh_head", "_head", "_headers", "_keep_alive",
        "_parser", "_pieces", "_receiver", "_sink", "_status", "_vain", "content_length", "framing", "idle_since",
        "pool", "reused", "started", "transport",
    )  # fmt: skip

    def __init__(self, pool: Pool) -> None:
        self._receiver: Receiver | None = None  # what every chunk needs stands first, for the processor's cache
        self._sink: Sink | None = None
        self._aligned = False         # the parser has read no part of a size line since the last whole chunk
        self._between_chunks = False  # nor of a chunk
        self.pool = pool
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._parser: Any = httptools.HttpResponseParser(self)
        self._headers: Headers = []
        self._head = _NO_HEAD
        self._pieces: list[bytes] = []
        self._status = 0
        self._done = False
        self._fresh_head = False
        self._keep_alive = False
        self._closed = False
        self._vain = 0  # bytes in a row that brought nothing: part of a head, a trailer, a size line
        self.reused = False
        self.started = False
        self.framing = EMPTY
        self.content_length = 0
        self.idle_since = 0.0

    # ── for the relay ────────────────────────────────────────────────────────────────────────────────
    def send(self, receiver: Receiver, head: bytes, body: bytes | bytearray) -> None:
        """Send a request whose answer goes to `receiver`."""
        self._receiver = receiver
        self._sink = None
        self.started = False
        self._done = self._aligned = False
        self._vain = 0
        if len(body) < _JOINED_BELOW:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))

    def pass_on(self, receiver: Receiver, sink: Sink) -> None:
        """Whole chunks go straight to `sink` from now on, where no other than `receiver` waits for them."""
        if self._receiver is receiver:
            self._sink = sink

    def abandon(self) -> None:
        """Nobody waits for the answer any more: close, which is how an engine learns it (engines.md §1.9)."""
        self._receiver = self._sink = None
        self.transport.abort()

    def dismiss(self) -> None:
        """It was made for somebody who has left meanwhile; the event loop may not tell its end any more."""
        self._closed = True
        self.pool.closed(self)
        if self.transport is not None:
            self.transport.abort()

    # ── asyncio ──────────────────────────────────────────────────────────────────────────────────────
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.pool.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self.pool.closed(self)
        receiver, self._receiver, self._sink = self._receiver, None, None
        if receiver is None:
            return
        if exc is None and self.framing == UNTIL_CLOSE and self.started and self._status:
            receiver.on_data([], True)
        else:
            receiver.on_broken(self, "connection reset" if exc else "connection closed")

    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is None:  # bytes nobody asked for: this connection can no longer be trusted
            self.transport.abort()
            return
        if self._aligned:
            size = size_of_one_chunk(data)
            if size:  # the parser, standing between two chunks, need not see this one
                if self._sink is not None:
                    self._sink.chunk(data, size)
                else:
                    receiver.on_chunk(data, size)
                return
        first = not self.started
        self.started = True
        if first and self.pool.repeat is not None:
            body = self.pool.repeat.heads.body_of(data)
            if body is not None:
                self._take_repeat(receiver, self.pool.repeat, body)
                return
        self._parse(receiver, data, first)

    def _parse(self, receiver: Receiver, data: bytes, first: bool) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not self._done:
                self._nonsense(receiver, error)
                return
            self._keep_alive = False  # the answer was complete; what it says beyond that is not read
        self._aligned = self._between_chunks and data.endswith(b"\r\n")
        if self._receiver is not receiver:  # the relay turned away inside on_head
            return
        if self._pieces or self._fresh_head or self._done:
            pieces, self._pieces = self._pieces, []
            self._fresh_head = False
            if self._done:
                if first and self._status == 200 and self._may_come_again():
                    self.pool.remember(data[: len(data) - self.content_length], self._head)
                self._finish()
            self._vain = 0
            receiver.on_data(pieces, self._done)
        else:
            self._vain += len(data)
            if self._vain > _MOST_IN_VAIN:
                self._nonsense(receiver, ValueError("a head or a trailer without an end"))

    def _may_come_again(self) -> bool:
        return self.framing == LENGTH and self._keep_alive and not self._head.streamed

    def _take_repeat(self, receiver: Receiver, said: Said, body: bytes) -> None:
        """The whole answer in one read, with a head that was parsed before."""
        self.pool.unlike = 0
        self._done = self._keep_alive = True
        self._finish()
        receiver.on_whole(said.head, body)

    def _nonsense(self, receiver: Receiver, error: Exception) -> None:
        self._receiver = self._sink = None
        self.transport.abort()
        if self._pieces:
            receiver.on_data(self._pieces, False)
            self._pieces = []
        receiver.on_broken(self, words_of(error))

    def _finish(self) -> None:
        self._receiver = self._sink = None
        if self._keep_alive and not self._closed and self.transport.get_write_buffer_size() == 0:
            self.pool.give_back(self)
        else:
            self.transport.close()

    def pause_reading(self) -> None:
        """The client is slow: stop taking from the engine. With the end of an answer the connection is the next
        request's already, whose client that is not."""
        if self._receiver is not None and not self._closed:
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """The client caught up."""
        if not self._closed:
            self.transport.resume_reading()

    # ── httptools ────────────────────────────────────────────────────────────────────────────────────
    def on_message_begin(self) -> None:
        if self._done:
            raise ValueError("a second answer to one request")
        self._headers = []
        self._status = 0
        self.content_length = -1

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._status:
            return  # a trailer; those are dropped
        name = name.lower()
        if name == b"content-length":
            self.content_length = int(value)
        else:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            if status < 100 or status == 101:
                raise ValueError("an upgrade nobody asked for, or no status at all")
            return
        self._status = status
        if self._headers != self._head.headers:
            self._head = AnswerHead(self._headers)
        if status in {204, 304}:
            self.framing = EMPTY
        elif self._head.chunked:
            self.framing = CHUNKED
            self._between_chunks = True
        else:
            self.framing = UNTIL_CLOSE if self.content_length < 0 else LENGTH
        if self._receiver is not None:
            self._fresh_head = True
            self._receiver.on_head(self, status, self._head)

    def on_body(self, body: bytes) -> None:
        if not self._status:
            raise ValueError("a body without a head")
        self._pieces.append(body)

    def on_chunk_header(self) -> None:
        self._between_chunks = False

    def on_chunk_complete(self) -> None:
        self._between_chunks = True

    def on_message_complete(self) -> None:
        self._between_chunks = False
        if self._status:  # an interim 1xx is a message of its own to the parser
            self._done = True
            self._keep_alive = self._parser.should_keep_alive()


class Said(NamedTuple):
    """The head of a successful answer that was parsed, and what it meant."""

    heads: Repeat
    head: AnswerHead


_UNLIKE_ENOUGH: Final = 64
"""An engine whose heads differ this often in a row (an id in each, say) is no longer listened to for repeats."""


class Pool:
    """The connections to one worker. The freshest idle one is reused first, so that the surplus ages away."""

    def __init__(self, spec: WorkerSpec, client: Client) -> None:
        self.spec = spec
        self.heads = Heads(spec)
        self._client = client
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self.created = 0
        self.taken_again = 0
        self.retired = False
        self.repeat: Said | None = None
        self.unlike = 0

    def remember(self, head: bytes, meaning: AnswerHead) -> None:
        """An answer had this head; the next one may have it again, on any connection to this worker."""
        if self.unlike < _UNLIKE_ENOUGH:
            self.unlike += 1
            heads = Repeat.of(head)
            self.repeat = None if heads is None else Said(heads, meaning)

    @property
    def idle_count(self) -> int:
        """Connections that wait for work."""
        return len(self._idle)

    @property
    def open_count(self) -> int:
        """Connections that stand."""
        return len(self._open)

    def take(self, now: float) -> Connection | None:
        """An idle connection that can still be trusted, or None."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.transport.is_closing():
                continue
            if now - connection.idle_since > self._client.idle_limit:
                connection.transport.close()
                continue
            connection.reused = True
            self.taken_again += 1
            return connection
        return None

    def give_back(self, connection: Connection) -> None:
        """The answer is complete and the connection may be used again."""
        if self.retired:
            connection.transport.close()
            return
        connection.idle_since = self._client.clock()
        self._idle.append(connection)

    def opened(self, connection: Connection) -> None:
        """Bookkeeping of a new connection."""
        self._open.add(connection)
        self.created += 1

    def closed(self, connection: Connection) -> None:
        """Bookkeeping of a lost one."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def sweep(self, now: float) -> None:
        """Close what has been idle too long."""
        while self._idle and now - self._idle[0].idle_since > self._client.idle_limit:
            self._idle.pop(0).transport.close()

    def close(self) -> None:
        """The worker left: idle connections go now, busy ones when their answer is complete."""
        self.retired = True
        for connection in list(self._idle):
            connection.transport.close()
        self._idle.clear()

    def abort(self) -> None:
        """End every connection at once."""
        self.retired = True
        for connection in list(self._open):
            connection.transport.abort()
        self._idle.clear()

    async def connect(self) -> Connection:
        """A fresh connection. Raises OSError (also for TLS failures) or TimeoutError."""
        return await self._client.dial(self)


class Dial(Protocol):
    """Makes a connection for a pool."""

    async def __call__(self, pool: Pool) -> Connection:
        """A fresh connection to the pool's worker. Raises OSError (also for TLS failures) or TimeoutError."""


class Client:
    """The pools of all workers. `idle_limit` is in seconds; connections are made by `dial`."""

    def __init__(self, dial: Dial, *, idle_limit: float, clock: Callable[[], float]) -> None:
        self.dial = dial
        self.idle_limit = idle_limit
        self.clock = clock
        self._pools: dict[Worker, Pool] = {}

    @property
    def pools(self) -> list[Pool]:
        """Every pool there is."""
        return list(self._pools.values())

    @property
    def workers(self) -> list[Worker]:
        """Every worker that has a pool."""
        return list(self._pools)

    def pool(self, worker: Worker) -> Pool:
        """The pool of that worker, made at first use."""
        pool = self._pools.get(worker)
        if pool is None:
            pool = self._pools[worker] = Pool(worker.spec, self)
        return pool

    def forget(self, worker: Worker) -> None:
        """The worker left the fleet."""
        pool = self._pools.pop(worker, None)
        if pool is not None:
            pool.close()

    def sweep(self, now: float) -> None:
        """Close idle connections whose time is over."""
        for pool in self._pools.values():
            pool.sweep(now)

    def close(self) -> None:
        """End of the program, while its event loop still runs: no worker is waited for."""
        for pool in self._pools.values():
            pool.abort()
        self._pools.clear()
