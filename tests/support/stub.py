"""A scripted worker on loopback that records all it is told, down to the bytes and the sockets.

It is a plain asyncio protocol, not an HTTP library, so it can say what no library would: half a head, a reset
in the middle of a chunk, an answer before the request's body. A reply is a list of steps:

* `bytes`: written as they are
* a number: that many seconds pass
* an `asyncio.Event`: waited for
* `Step.RESET`: the socket is reset (RST); `Step.CLOSE`: closed; `Step.HANG`: silent until the peer leaves

How replies are built: `tests.support.replies`.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from time import monotonic
from typing import Self

from tests.support.heads import Head, dechunk, parse_head
from tests.support.replies import error, unary


class Step(Enum):
    """What a reply can do apart from writing and waiting."""

    RESET = "reset"
    CLOSE = "close"
    HANG = "hang"


Reply = Sequence["bytes | float | asyncio.Event | Step"]
Script = Callable[["Seen"], Reply]
OK: Reply = unary({"ok": True})
PROBED = ("/health", "/v1/models", "/metrics", "/kv_event_sources", "/server_info")
SPOKEN = ("/v1/messages", "/v1/messages/count_tokens", "/v1/responses")


def is_probe(head: Head) -> bool:
    """The router asks for itself: for health, models or metrics, or whether an API is spoken here."""
    if head.path == "/tokenize":  # relayed for clients as well; what is relayed has an id
        return not head.all("x-request-id")
    return head.path in PROBED or (head.method == "GET" and head.path in SPOKEN)


class Seen:
    """One request as it arrived: `head` with headers in order and repeats kept, `body`, and when."""

    def __init__(self, head: Head, connection: Connection) -> None:
        self.head = head
        self.connection = connection
        self.body = b""
        self.started = monotonic()
        self.complete = asyncio.Event()
        self.answering = False
        self.sent = 0               # bytes of the reply handed to the socket so far
        self.ended: float | None = None

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()

    def get(self, name: str) -> str | None:
        """The only value of a header; None when absent, AssertionError when repeated."""
        values = self.head.all(name)
        assert len(values) <= 1, f"{name} is repeated: {values}"
        return values[0] if values else None


class Connection(asyncio.Protocol):
    """One socket of the router's; requests on it are answered in turn."""

    def __init__(self, worker: StubWorker) -> None:
        self.worker = worker
        self.requests: list[Seen] = []
        self.opened = monotonic()
        self.closed: float | None = None
        self.half_closed = False
        self.gone = asyncio.Event()
        self.raw = bytearray()      # everything ever received
        self._buffer = bytearray()
        self._current: Seen | None = None
        self._answer: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    # ── asyncio's side ───────────────────────────────────────────────────────────────────────────────
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.worker.connections.append(self)

    def data_received(self, data: bytes) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self.raw += data
        self._buffer += data
        try:
            self._advance()
        except (AssertionError, ValueError) as wrong:
            self.worker.failures.append(wrong)
            self.transport.abort()

    def eof_received(self) -> None:
        self.half_closed = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = monotonic()
        self.gone.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ── requests in, replies out ─────────────────────────────────────────────────────────────────────
    def _advance(self) -> None:
        """Go on as far as the buffer allows: a head, then its body, then the reply."""
        if self._current is None and not self._take_head():
            return
        seen = self._current
        assert seen is not None
        if self._take_body(seen):
            self._current = None
            seen.complete.set()
            self._start(seen)

    def _take_head(self) -> bool:
        """Read the next head, if it is there and the reply to the last request is out."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or self._answer is not None:
            return False
        seen = self._current = self.worker.saw(parse_head(bytes(self._buffer[:end])), self)
        del self._buffer[:end + 4]
        self.requests.append(seen)
        if self.worker.early:
            self._start(seen)
        return True

    def _take_body(self, seen: Seen) -> bool:
        """Move the body to `seen` once all of it is there."""
        if seen.head.chunked:
            done = dechunk(bytes(self._buffer))
            if done is None:
                return False
            seen.body, used = done
        else:
            used = seen.head.length
            if len(self._buffer) < used:
                return False
            seen.body = bytes(self._buffer[:used])
        del self._buffer[:used]
        return True

    def _start(self, seen: Seen) -> None:
        if not seen.answering:
            seen.answering = True
            self._answer = self.worker.spawn(self._play(seen))

    async def _play(self, seen: Seen) -> None:
        self.worker.began(seen)
        try:
            for step in self.worker.reply_to(seen):
                await self._step(step, seen)
                if self.gone.is_set():
                    break
        finally:
            seen.ended = monotonic()
            self.worker.ended(seen)
            self._answer = None
        if not self.gone.is_set():
            self._after()

    async def _step(self, step: bytes | float | asyncio.Event | Step, seen: Seen) -> None:
        if isinstance(step, bytes):
            self.transport.write(step)
            seen.sent += len(step)
            await self._writable.wait()
        elif isinstance(step, asyncio.Event):
            await first(step.wait(), self.gone.wait())
        elif isinstance(step, Step):
            if step is Step.RESET:
                self.reset()
            elif step is Step.CLOSE:
                self.transport.close()
            await self.gone.wait()
        else:
            await first(asyncio.sleep(step), self.gone.wait())

    def _after(self) -> None:
        if self.worker.close_after_reply:
            self.transport.close()
        elif self._buffer:
            self._advance()
        elif self.worker.idle is not None:
            self._idle = asyncio.get_running_loop().call_later(self.worker.idle, self.transport.close)

    def reset(self) -> None:
        """End with RST, the way a killed process does."""
        sock: socket.socket = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class StubWorker:
    """A worker that answers as told. `async with StubWorker("u1") as worker:`

    `calls` are the relayed requests so far, `probes` those for /health, /v1/models and /metrics. `script`
    answers a relayed request; `replies`, while there are any, are used up first. `early` answers at the head,
    before the body. `spoken` are the routes of other APIs that it has. `idle` closes a connection that has been
    silent that many seconds after a reply.
    """

    def __init__(self, name: str = "u1", models: Sequence[str] = ("m",), host: str = "127.0.0.1") -> None:
        self.name = name
        self.host = host
        self.port = 0
        self.models = tuple(models)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections: list[Connection] = []
        self.failures: list[BaseException] = []
        self.forget()

    def forget(self) -> None:
        """Back to the defaults, with nothing recorded; open connections stay."""
        self.calls: list[Seen] = []
        self.probes: list[Seen] = []
        self.replies: list[Reply] = []
        self.script: Script = lambda _seen: OK
        self.health: Reply = unary({"status": "ok"})
        listed = [{"id": name, "object": "model", "created": 1, "owned_by": "stub"} for name in self.models]
        self.listing: Reply = unary({"object": "list", "data": listed})
        self.metrics: Reply = unary({})
        self.spoken: set[str] = set(SPOKEN)
        self.early = False
        self.close_after_reply = False
        self.idle: float | None = None
        self.open = 0
        self.most = 0
        self._arrival = asyncio.Event()

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────
    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.refuse()
        for connection in self.connections:
            if not connection.gone.is_set():
                connection.transport.abort()
                await connection.gone.wait()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        assert not self.failures, self.failures

    async def listen(self) -> None:
        """Accept connections, on the same port as before."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), self.host, self.port, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Stop listening: connections are refused from now on; open ones stay."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await asyncio.sleep(0)

    async def die(self) -> None:
        """Refuse new connections and reset the open ones."""
        await self.refuse()
        for connection in self.connections:
            if not connection.gone.is_set():
                connection.reset()
                await connection.gone.wait()

    # ── telling it what to say ───────────────────────────────────────────────────────────────────────
    def always(self, reply: Reply) -> None:
        """Answer every relayed request with `reply`."""
        self.script = lambda _seen: reply

    def then(self, *replies: Reply) -> None:
        """Answer the next relayed requests with these, one each."""
        self.replies.extend(replies)

    def reply_to(self, seen: Seen) -> Reply:
        if seen.head.path == "/health":
            return self.health
        if seen.head.path == "/v1/models":
            return self.listing
        if seen.head.path == "/metrics":
            return self.metrics
        if is_probe(seen.head):
            return error(405 if seen.head.path in self.spoken else 404, {"detail": "no"})
        return self.replies.pop(0) if self.replies else self.script(seen)

    # ── what it saw ──────────────────────────────────────────────────────────────────────────────────
    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def relayed(self) -> list[Connection]:
        """The connections that carried a relayed request."""
        return [c for c in self.connections if any(not is_probe(r.head) for r in c.requests)]

    def saw(self, head: Head, connection: Connection) -> Seen:
        seen = Seen(head, connection)
        if is_probe(head):
            self.probes.append(seen)
        else:
            self.calls.append(seen)
            self._arrival.set()
        return seen

    def began(self, seen: Seen) -> None:
        if not is_probe(seen.head):
            self.open += 1
            self.most = max(self.most, self.open)

    def ended(self, seen: Seen) -> None:
        self.open -= not is_probe(seen.head)

    def spawn(self, play: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(play)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.failures.append(failure)

    async def called(self, count: int = 1, within: float = 10.0) -> Seen:
        """Wait until `count` relayed requests have arrived whole; returns the last of them."""
        async with asyncio.timeout(within):
            while len(self.calls) < count:
                self._arrival.clear()
                await self._arrival.wait()
            seen = self.calls[count - 1]
            await seen.complete.wait()
            return seen


async def first(*waits: Coroutine[object, object, object]) -> None:
    """Return when the first of `waits` is done; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
