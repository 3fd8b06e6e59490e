"""What the event loop hands over for one client: a head seen before goes straight to a relay, all else to the parser.

This is the compiled half of a client's connection; `connection` holds the other, which uvicorn knows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from infera_cli.gateway.relay import Relay
from infera_cli.protocol.headers import RequestHead
from infera_cli.protocol.repeat import Repeat, SessionRepeat

if TYPE_CHECKING:
    from infera_cli.gateway.connection import ClientConnection
    from infera_cli.gateway.gate import Gate

PIPELINE: Final = 8
"""With more requests waiting than this nothing more is read; until then it is, so that a client's leaving is seen."""
_UNLIKE_ENOUGH: Final = 8
"""A client whose heads differ this often in a row is taken at its word: its heads are no longer remembered."""


class Said:
    """A head that was parsed, and what it meant. One of `heads` and `sessions` is there."""

    __slots__ = ("head", "heads", "http11", "kind", "sessions", "target")

    def __init__(self, relay: Relay, raw: bytes) -> None:
        named = relay.head.session
        self.sessions = SessionRepeat.of(raw) if named is not None and named[0] == "session" else None
        self.heads = Repeat.of(raw) if self.sessions is None else None
        self.target = relay.target
        self.head: RequestHead = relay.head
        self.http11: bool = relay.answer.http11
        self.kind = type(relay)


class Channel:
    """The event loop's protocol for one client, and whose turn it is there."""

    __slots__ = (
        "between", "connection", "cycle", "gate", "idle_since", "peer", "pipeline", "repeat", "serving", "transport",
        "unlike",
    )  # fmt: skip

    def __init__(self, gate: Gate, connection: ClientConnection) -> None:
        self.gate = gate
        self.connection = connection
        self.transport: Any = None
        self.pipeline: deque[Any] = deque()
        self.peer = ""
        self.cycle: Any = None    # the last request whose head was read: uvicorn's cycle or a Relay
        self.serving: Any = None  # the one that is being answered; pipelined ones wait behind it
        self.between = True       # no part of a message was read since the last whole one
        self.idle_since = 0.0     # 0: not idle
        self.repeat: Said | None = None
        self.unlike = 0           # requests in a row that were no repeat

    def opened(self, transport: asyncio.Transport, peer: str) -> None:
        """The connection stands; `peer` is the client's address."""
        self.transport = transport
        self.peer = peer
        self.pipeline = self.connection.pipeline
        self.idle_since = self.gate.clock()

    # ── asyncio ──────────────────────────────────────────────────────────────────────────────────────
    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio's."""
        self.connection.connection_lost(exc)

    def eof_received(self) -> None:
        """Asyncio's: the transport closes."""

    def pause_writing(self) -> None:
        """Asyncio's: the client reads slower than we write."""
        self.connection.pause_writing()

    def resume_writing(self) -> None:
        """Asyncio's: it caught up."""
        self.connection.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Asyncio's: what one read brought."""
        said = self.repeat
        if said is not None and self.between:
            if said.sessions is not None:
                told = said.sessions.told_by(data)
                if told is not None:
                    session, body = told
                    self._take(said, said.head.of_session(session), body)
                    return
            elif said.heads is not None:
                same = said.heads.body_of(data)
                if same is not None:
                    self._take(said, said.head, same)
                    return
        self.connection.feed(data)

    # ── the same head again ──────────────────────────────────────────────────────────────────────────
    def remember(self, data: bytes, relay: Relay) -> None:
        """`data` was one whole request: should the next one begin with the same head, it need not be parsed."""
        self.unlike += 1
        if self.unlike < _UNLIKE_ENOUGH and relay.asked_to_keep_alive:
            self.repeat = Said(relay, data[: len(data) - relay.length])
        else:
            self.repeat = None

    def _take(self, said: Said, head: RequestHead, body: bytes) -> None:
        self.unlike = 0
        self.idle_since = 0.0
        before = self.cycle
        self.cycle = relay = said.kind(self.gate, self, said.target, head, len(body), said.http11, True)
        relay.body = body
        relay.complete = True
        self.serve_after(before, relay)

    # ── whose turn it is ─────────────────────────────────────────────────────────────────────────────
    def serve_after(self, before: Any, relay: Relay) -> None:
        """Serve `relay`, now or once `before` is answered."""
        if before is None or before.response_complete:
            self.serving = relay
            relay.begin()
        else:
            if len(self.pipeline) >= PIPELINE:
                self.connection.flow.pause_reading()
            self.pipeline.appendleft((relay, None))

    def relay_ended(self, relay: Relay, now: float) -> None:
        """The answer of `relay` has left, or its client has."""
        if self.transport.is_closing():
            return
        if not relay.keep_alive:
            self.connection.last_answer_left(relay)
        elif self.pipeline or self.connection.flow.read_paused:
            self.connection.on_response_complete()
        else:
            self.idle_since = now
