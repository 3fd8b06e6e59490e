"""One relayed request, from its head to the last byte of its answer: callbacks, no task of its own (design.md §3).

The shape: collect the body, identify, then a short loop over attempts. An attempt ends by what it allows:
nothing was sent (another worker, free of charge), sent but unanswered (another worker while retries last),
answering (nobody else any more). Only a worker's own fault counts against it (rulings 2).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from infera_cli.errors import (
    BodyTooLarge,
    BrokenStream,
    InferaError,
    ModelNotFound,
    NoRoutableWorker,
    RequestTimeout,
    UpstreamTimeout,
    WorkerUnreachable,
)
from infera_cli.events import Outcome, RequestDone, WorkerFault
from infera_cli.gateway.answer import Answer
from infera_cli.gateway.identity import identify, mint, request_id
from infera_cli.gateway.ports import Lease, Score
from infera_cli.gateway.upstream.http import Connection
from infera_cli.protocol.headers import NOT_SENT_UP, Headers, is_sound_id, less_connection, lines
from infera_cli.routing.journey import Journey
from infera_cli.routing.types import Ask, Worker

if TYPE_CHECKING:
    from infera_cli.gateway.connection import ClientConnection
    from infera_cli.gateway.gate import Gate

_MAY_GO_ELSEWHERE = frozenset({429, 500, 502, 503, 504})
"""Answers that are the engine's trouble, not the request's. 501 and 505 would be the same everywhere."""


class Relay:
    """A request that the data plane serves. To uvicorn's protocol it looks like a request-response cycle."""

    def __init__(
        self, gate: Gate, client: ClientConnection, target: bytes, headers: Headers, *, http11: bool, keep_alive: bool
    ) -> None:
        self.gate = gate
        self.client = client
        self.target = target
        self.headers = headers
        self.known = dict(headers)
        self.answer = Answer(client.transport, http11=http11, keep_alive=keep_alive)
        self.journey = Journey()
        self.body: bytearray | None = bytearray()
        self.complete = False
        self.its_turn = False
        self.id = request_id(self.known, gate.bits)
        self.session: str | None = None
        self.ask = Ask()
        self.strip: frozenset[bytes] = frozenset()
        self.why = ""
        self.lease: Lease | None = None
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.retries = 0
        self.scored = False
        self.started = gate.clock()
        self.received = self.picked = self.sent = self.first_byte = self.attempt = 0.0
        self.bytes_in = 0
        self.seen_chunks = -1
        self.moved = self.commented = self.started

    # ── what uvicorn asks of a cycle ─────────────────────────────────────────────────────────────────
    @property
    def response_complete(self) -> bool:
        """Whether the next pipelined request may be answered."""
        return self.journey.ended

    @property
    def keep_alive(self) -> bool:
        """Whether the client's connection outlives this answer."""
        return self.answer.keep_alive

    @keep_alive.setter
    def keep_alive(self, value: bool) -> None:
        self.answer.keep_alive = value

    # ── the request comes in ─────────────────────────────────────────────────────────────────────────
    def begin(self, expects_continue: bool) -> None:
        """It is this request's turn to be answered: earlier ones of the connection are done."""
        self.its_turn = True
        try:
            self._check_length()
            self.gate.enter(self)
        except InferaError as error:
            self.refuse(error)
            return
        if self.complete:
            self._start()
        elif expects_continue:
            self.client.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _check_length(self) -> None:
        limit = self.gate.options.limits.body_bytes
        if self.body is None or int(self.known.get(b"content-length", 0)) > limit:
            raise too_large(limit)

    def take_body(self, data: bytes) -> None:
        """A piece of the request body."""
        if self.body is None:
            return
        self.body += data
        if len(self.body) > self.gate.options.limits.body_bytes:
            self.body = None
            if self.its_turn:
                self.refuse(too_large(self.gate.options.limits.body_bytes))

    def take_end(self) -> None:
        """The request is complete."""
        self.complete = True
        if self.its_turn and not self.journey.ended:
            self._start()

    def _start(self) -> None:
        assert self.body is not None
        self.journey.move("admitted")
        self.bytes_in = len(self.body)
        self.received = self.gate.clock()
        identity = identify(self.known, self.body, self.gate.bits)
        self.session = identity.session
        self.ask = Ask(identity.model, identity.pin)
        try:
            self._attempt()
        except InferaError as error:
            self.refuse(error)

    def pause(self) -> None:
        """The client reads slower than the worker writes."""
        if self.connection is not None:
            self.connection.pause_reading()

    def resume(self) -> None:
        """The client caught up."""
        if self.connection is not None:
            self.connection.resume_reading()

    # ── attempts ─────────────────────────────────────────────────────────────────────────────────────
    def _attempt(self) -> None:
        """Choose a worker and send. Raises ModelNotFound, NoRoutableWorker."""
        decision, lease = self.gate.dispatcher.route(self.ask)
        self.journey.move("routed")
        self.why = decision.why
        self.lease = lease
        self.scored = False
        self.picked = self.attempt = self.gate.clock()
        self._send_on(self.gate.upstream.pool(lease.worker).take(self.picked))

    def _send_on(self, connection: Connection | None) -> None:
        if connection is None:
            self.connecting = asyncio.get_running_loop().create_task(self._connect())
        else:
            self._send(connection)

    async def _connect(self) -> None:
        assert self.lease is not None
        worker = self.lease.worker
        try:
            connection = await self.gate.upstream.pool(worker).connect()
        except (OSError, TimeoutError) as error:
            self.connecting = None
            self._failed(worker, Score.UNREACHABLE, "connect", _named(error))
            return
        self.connecting = None
        self._send(connection)

    def _send(self, connection: Connection) -> None:
        assert self.lease is not None
        assert self.body is not None
        self.journey.move("sent")
        self.connection = connection
        self.sent = self.gate.clock()
        connection.send(self, [self._head(self.lease.worker), self.body])

    def _head(self, worker: Worker) -> bytes:
        spec = worker.spec
        dropped = less_connection(NOT_SENT_UP, self.known.get(b"connection")) | self.strip
        ours = b"x-request-id: %b\r\n" % self.id.encode()
        if spec.api_key is not None:
            dropped |= {b"authorization", b"x-api-key"}
            ours += b"authorization: Bearer %b\r\n" % spec.api_key.encode()
        given = self.known.get(b"x-session-id")
        if given is not None and not is_sound_id(given):
            dropped |= {b"x-session-id"}
        return b"POST %b%b HTTP/1.1\r\nhost: %b\r\n%bcontent-length: %d\r\n%b\r\n" % (
            spec.path_prefix.encode(), self.target, spec.authority.encode(), lines(self.headers, dropped), self.bytes_in, ours,
        )  # fmt: skip

    def _failed(self, worker: Worker, score: Score, reason: str, detail: str) -> None:
        """An attempt ended before anything went to the client: score it, and try elsewhere where that is allowed."""
        self._score(score)
        self._settle()
        self.gate.bus.emit(WorkerFault(worker.id, reason, self.id, detail))
        if reason != "connect":
            if self.retries >= self.gate.options.max_retries:
                self._give_up(unreachable(worker, reason))
                return
            self.retries += 1
        self.ask = Ask(self.ask.model, self.ask.session, (*self.ask.tried, worker))
        try:
            self._attempt()
        except (NoRoutableWorker, ModelNotFound):
            self._give_up(unreachable(worker, reason))

    def _can_go_elsewhere(self, worker: Worker) -> bool:
        if self.retries >= self.gate.options.max_retries:
            return False
        return self.gate.dispatcher.can_route(Ask(self.ask.model, self.ask.session, (*self.ask.tried, worker)))

    # ── the worker answers (upstream.http.Receiver) ──────────────────────────────────────────────────
    def on_head(self, connection: Connection, status: int, headers: Headers) -> None:
        """The worker's status and headers."""
        assert self.lease is not None
        worker = self.lease.worker
        if status in _MAY_GO_ELSEWHERE and self._can_go_elsewhere(worker):
            self._drop_connection()
            score = Score.NEUTRAL if status == 429 else Score.FAULT
            self._failed(worker, score, f"status_{status}", "")
            return
        if status >= 500 and status not in {501, 505}:
            self._score(Score.FAULT)
            self.gate.bus.emit(WorkerFault(worker.id, f"status_{status}", self.id))
        self.journey.move("answering")
        self.body = None
        self.answer.begin(status, headers, connection.framing, connection.content_length, self._our_headers())

    def on_data(self, pieces: list[bytes], done: bool) -> None:
        """What one read brought."""
        answer = self.answer
        if pieces and not self.first_byte:
            self.first_byte = self.gate.clock()
            if answer.status < 400:
                self._score(Score.SUCCESS)
        if not done:
            answer.data(pieces, False)
            return
        ending = self.gate.ending(self.target, answer, pieces) if answer.streamed and answer.status < 400 else "done"
        answer.data(pieces, ending != "cut")
        if ending == "cut":
            self._break_off("The worker ended the stream before the answer was complete.")
            return
        self._score(Score.SUCCESS if answer.status < 400 else Score.NEUTRAL)
        if answer.status >= 400:
            self._end("done", "5xx" if answer.status >= 500 else "4xx")
        else:
            self._end("done", "ok" if ending == "done" else "broken")

    def on_broken(self, connection: Connection, detail: str) -> None:
        """The connection ended before the answer was complete."""
        assert self.lease is not None
        self.connection = None
        worker = self.lease.worker
        if self.answer.started:
            self.gate.bus.emit(WorkerFault(worker.id, "stream", self.id, detail))
            self._break_off("The worker broke off in the middle of its answer.")
        elif connection.reused and not connection.started:
            # It closed an idle connection just as we wrote: nobody's fault, and surely not executed (R022).
            self.journey.move("routed")
            self._send_on(None)
        else:
            self._failed(worker, Score.FAULT, "broken", detail)

    def _break_off(self, message: str) -> None:
        error = BrokenStream(message)
        self.answer.break_off(self.gate.error_event(self.target, error))
        self._drop_connection()
        self._end("failed", "broken", message)

    # ── endings ──────────────────────────────────────────────────────────────────────────────────────
    def client_gone(self) -> None:
        """The client's connection is lost: the engine must learn it at once (R001, R002)."""
        if self.journey.ended:
            return
        self._drop_connection()
        self._score(Score.NEUTRAL)
        self._end("gone", "client_gone")

    def timed_out(self, what: str) -> None:
        """A limit of ours passed: 504 before the answer began, a broken answer after; the worker is not blamed (B40)."""
        self._drop_connection()
        self._score(Score.NEUTRAL)
        error: InferaError = UpstreamTimeout(f"The worker did not finish in time ({what} time-out).")
        if not self.complete:
            self.refuse(RequestTimeout("The request body did not arrive in time."))
        elif self.answer.started:
            self.answer.break_off(self.gate.error_event(self.target, error))
            self._end("failed", "timeout", error.message)
        else:
            self._give_up(error, "timeout")

    def worker_left(self, worker: Worker) -> None:
        """The worker is gone from the fleet: what it has not begun to answer moves on (R110)."""
        if self.lease is None or self.lease.worker is not worker or self.answer.started:
            return
        self._drop_connection()
        self._failed(worker, Score.NEUTRAL, "connect", "the worker left the fleet")

    def refuse(self, error: InferaError) -> None:
        """An answer of our own, before any worker was asked."""
        if isinstance(error, NoRoutableWorker):
            self.gate.dispatcher.fleet.reject()
        self.answer.keep_alive = self.answer.keep_alive and self.complete
        self.answer.refuse(error.status, self.gate.error_body(self.target, error), self._our_headers(error))
        self._end("refused", "rejected", error.message)

    def _give_up(self, error: InferaError, outcome: Outcome = "5xx") -> None:
        self.answer.refuse(error.status, self.gate.error_body(self.target, error), self._our_headers(error))
        self._end("failed", outcome, error.message)

    def _score(self, score: Score) -> None:
        if self.lease is not None and not self.scored:
            self.scored = True
            self.gate.dispatcher.fleet.score(self.lease.worker, score, self.gate.clock())

    def _settle(self) -> None:
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.settle(self.gate.clock())

    def _drop_connection(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abandon()
        connecting, self.connecting = self.connecting, None
        if connecting is not None:
            connecting.cancel()

    def _end(self, state: str, outcome: Outcome, error: str | None = None) -> None:
        worker = self.lease.worker.id if self.lease is not None else self.ask.tried[-1].id if self.ask.tried else None
        self._settle()
        self.connection = None
        self.body = None
        self.journey.move(state)  # type: ignore[arg-type]
        self.gate.leave(self, self._record(worker, outcome, error))
        self.client.relay_ended(self)

    def _record(self, worker: str | None, outcome: Outcome, error: str | None) -> RequestDone:
        began, answer = self.started, self.answer
        return RequestDone(
            id=self.id, path=self.target.partition(b"?")[0].decode("latin-1"), model=self.ask.model, session=self.session,
            worker=worker, why=self.why, status=answer.status, outcome=outcome, retries=self.retries,
            streamed=answer.streamed, started=self.gate.unix_time(began),
            received=self.received - began if self.received else None,
            picked=self.picked - began if self.picked else None,
            sent=self.sent - began if self.sent else None,
            first_byte=self.first_byte - began if self.first_byte else None,
            total=self.gate.clock() - began, chunks=answer.chunks, bytes_in=self.bytes_in, bytes_out=answer.bytes_out,
            tail=answer.tail(), peer=self.client.peer, error=error,
        )  # fmt: skip

    def _our_headers(self, error: InferaError | None = None) -> bytes:
        name = self.id.encode()
        if self.session is None:
            self.session = mint(self.gate.bits)
        out = b"x-request-id: %b\r\nx-infera-request-id: %b\r\nx-session-id: %b\r\n" % (name, name, self.session.encode())
        if error is None:
            assert self.lease is not None
            return out + b"x-infera-worker: %b\r\nserver-timing: queue;dur=%.3f, pick;dur=%.3f, upstream;dur=%.3f\r\n" % (
                self.lease.worker.id.encode("ascii", "replace"), (self.received - self.started) * 1e3,
                (self.picked - self.received) * 1e3, (self.gate.clock() - self.picked) * 1e3,
            )  # fmt: skip
        if error.retry_after is not None:
            out += b"retry-after: %d\r\n" % max(1, round(error.retry_after))
        if error.status == 401:
            out += b"www-authenticate: Bearer\r\n"
        return out


def too_large(limit: int) -> BodyTooLarge:
    """The refusal of a body over the limit."""
    return BodyTooLarge(f"The request body is over the limit of {limit} bytes (--max-body-size).")


def unreachable(worker: Worker, reason: str) -> WorkerUnreachable:
    """What the client is told when no worker was left to try; details stay in the log (S47)."""
    what = "could not be reached" if reason == "connect" else "failed before it answered"
    return WorkerUnreachable(f"Worker {worker.id} {what}, and no other one could take the request.")


def _named(error: BaseException) -> str:
    return str(error) or type(error).__name__
