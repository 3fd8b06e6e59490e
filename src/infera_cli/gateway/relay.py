"""One relayed request, from its head to the last byte of its answer: callbacks, no task of its own (design.md §3).

The shape: collect the body, identify, then a short loop over attempts. An attempt ends by what it allows:
nothing was sent (another worker, free of charge), sent but unanswered (another worker while retries last),
answering (nobody else any more). Only a worker's own fault counts against it (rulings 2).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from infera_cli.errors import BrokenStream, InferaError, ModelNotFound, NoRoutableWorker
from infera_cli.events import Outcome, Reason, WorkerFault
from infera_cli.gateway import marks
from infera_cli.gateway.answer import Answer
from infera_cli.gateway.identity import identify
from infera_cli.gateway.overdue import ROUND_TRIP, too_late
from infera_cli.gateway.ports import ENGINE_TROUBLE, Lease, Score, is_fault
from infera_cli.gateway.record import reason_of, record_of
from infera_cli.gateway.refusals import too_large, unreachable
from infera_cli.gateway.upstream.http import Connection
from infera_cli.gateway.upstream.receiver import Receiver
from infera_cli.protocol.headers import AnswerHead, RequestHead
from infera_cli.routing.journey import Journey, State
from infera_cli.routing.types import Ask, Decision, Worker

if TYPE_CHECKING:
    from infera_cli.gateway.channel import Channel
    from infera_cli.gateway.gate import Gate
    from infera_cli.gateway.plan import Trip

NONE_STRIPPED: Final[frozenset[bytes]] = frozenset()
NOBODY_ASKED: Final = Ask()


class Relay(Receiver):
    """A request that the data plane serves. To uvicorn's protocol it looks like a request-response cycle."""

    __slots__ = (
        "answer", "ask", "asked_to_keep_alive", "blamed", "body", "bytes_in", "client", "commented", "complete",
        "connecting", "connection", "first_byte", "gate", "head", "id", "its_turn", "journey", "lease", "length",
        "moved", "picked", "received", "refusal", "retries", "scored", "seen_bytes", "seen_chunks", "sent", "session",
        "started", "strip", "target", "trip", "why",
    )  # fmt: skip

    def __init__(
        self, gate: Gate, client: Channel, target: bytes, head: RequestHead, length: int,
        http11: bool, keep_alive: bool,
    ) -> None:  # fmt: skip
        self.gate = gate
        self.client = client
        self.target = target
        self.head = head
        self.length = length
        self.asked_to_keep_alive = keep_alive
        self.answer = Answer(client.transport, http11, keep_alive)
        self.journey = Journey()
        self.body: bytes | bytearray | None = b""
        self.id = head.request_id or gate.random_bytes(16).hex()
        self.started = gate.clock()
        self.received = self.picked = self.sent = self.first_byte = self.moved = self.commented = 0.0
        self.complete = self.its_turn = self.scored = self.blamed = False
        self.session: str | None = None
        self.why = ""
        self.strip = NONE_STRIPPED
        self.refusal: InferaError | None = None
        self.lease: Lease | None = None
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.ask = NOBODY_ASKED
        self.trip: Trip | None = None
        self.retries, self.bytes_in, self.seen_bytes, self.seen_chunks = 0, 0, 0, -1

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
    def begin(self) -> None:
        """It is this request's turn to be answered: earlier ones of the connection are done."""
        self.its_turn = True
        try:
            if self.refusal is not None or self.length > self.gate.options.limits.body_bytes:
                raise self.refusal or too_large(self.gate.options.limits.body_bytes)
            self.gate.enter(self)
        except InferaError as error:
            self.refuse(error)
            return
        if self.complete:
            self._start()
        elif self.answer.http11 and self.head.fields.get(b"expect", b"").lower() == b"100-continue":
            self.client.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def take_body(self, data: bytes) -> None:
        """A piece of the request body."""
        if self.body is None:  # refused already
            return
        if not self.body:
            self.body = data
        else:
            if isinstance(self.body, bytes):
                self.body = bytearray(self.body)
            self.body += data
        if len(self.body) > self.gate.options.limits.body_bytes:
            self.reject(too_large(self.gate.options.limits.body_bytes))

    def reject(self, error: InferaError) -> None:
        """What is still coming in cannot be served: say so when it is this request's turn."""
        self.body = None
        self.refusal = error
        if self.its_turn:
            self.refuse(error)

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
        try:
            if self.gate.plan is not None:
                self.gate.plan.begin(self)
                return
            model, self.session, pin = identify(self.head, self.body, self.gate.random_bytes)
            self.ask = Ask(model, pin)
            self.attempt(self.received)
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
    def attempt(self, now: float) -> None:
        """Choose a worker and send. Raises ModelNotFound, NoRoutableWorker."""
        if self.trip is None:
            decision, self.lease = self.gate.dispatcher.route(self.ask, now)
            self.placed(decision)
        else:
            self.trip.route(now)

    def placed(self, decision: Decision) -> None:
        """A worker was chosen, and its place is reserved: send."""
        self.journey.move("routed")
        self.why = decision.why
        self.scored = False
        self.picked = now = self.gate.clock()
        connection = self.gate.upstream.pool(decision.worker).take(now)
        if connection is None:
            self._connect_anew()
        else:
            self._send(connection, now)

    def _connect_anew(self) -> None:
        self.connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        assert self.lease is not None
        worker = self.lease.worker
        try:
            connection = await self.gate.upstream.pool(worker).connect()
        except (OSError, TimeoutError) as error:
            self.connecting = None
            self._failed(worker, Score.UNREACHABLE, "connect", str(error) or type(error).__name__)
            return
        self.connecting = None
        self._send(connection, self.gate.clock())

    def _send(self, connection: Connection, now: float) -> None:
        assert self.body is not None
        assert self.lease is not None
        self.journey.move("sent")
        self.connection = connection
        self.sent = now
        receiver = self if self.trip is None else self.trip.receiver(self)
        heads = connection.pool.heads
        head = heads.write(self.head, self.strip, self.target, self.bytes_in, self.id, self.lease.rank)
        connection.send(receiver, head, self.body)

    def _failed(self, worker: Worker, score: Score, reason: str, detail: str) -> None:
        """An attempt ended before anything went to the client: score it, and try elsewhere where that is allowed."""
        self._score(score)
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.settle(self.gate.clock())
        self.gate.bus.emit(WorkerFault(worker.id, reason, self.id, detail))
        self.ask = self.ask.after(worker)
        was_sent = reason != "connect"
        if was_sent and self.retries >= self.gate.options.max_retries:
            self.give_up(unreachable(worker, reason))
            return
        self.retries += was_sent
        try:
            self.attempt(self.gate.clock())
        except (NoRoutableWorker, ModelNotFound):
            self.retries -= was_sent  # nobody was there to send it to
            self.give_up(unreachable(worker, reason))

    def turn_away(self, reason: str, score: Score = Score.FAULT) -> None:
        """Nothing of what this worker says is passed on; somebody else may do better."""
        assert self.lease is not None
        self._drop_connection()
        self._failed(self.lease.worker, score, reason, "")

    def can_go_elsewhere(self, worker: Worker) -> bool:
        """Whether it may be sent again, and there is somebody to send it to."""
        if self.retries >= self.gate.options.max_retries or (self.trip is not None and self.trip.stays):
            return False
        return self.gate.dispatcher.can_route(self.ask.after(worker))

    # ── the worker answers (upstream.http.Receiver) ──────────────────────────────────────────────────
    def on_head(self, connection: Connection, status: int, head: AnswerHead) -> None:
        """The worker's status and headers."""
        assert self.lease is not None
        worker = self.lease.worker
        if status in ENGINE_TROUBLE and self.can_go_elsewhere(worker):
            self.turn_away(f"status_{status}", Score.NEUTRAL if status == 429 else Score.FAULT)
            return
        if is_fault(status):
            self._score(Score.FAULT)
            self.gate.bus.emit(WorkerFault(worker.id, f"status_{status}", self.id))
        self.journey.move("answering")
        self.body = None
        ours = marks.of_answer(self, worker.id, self.gate.clock())
        self.answer.begin(status, head, connection.framing, connection.content_length, ours)

    def on_whole(self, head: AnswerHead, body: bytes) -> None:
        """A 200 that is all here: the short way of most unary answers."""
        assert self.lease is not None
        self.first_byte = now = self.gate.clock()
        self._score(Score.SUCCESS, now)
        self.journey.move("answering")
        self.answer.whole(head, body, marks.of_answer(self, self.lease.worker.id, now))
        self._end("done", "ok")

    def on_chunk(self, framed: bytes, size: int) -> None:
        """One whole chunk and nothing else: most reads of a stream."""
        if self.first_byte and self.connection is not None:
            self.connection.pass_on(self, self.answer)
            self.answer.chunk(framed, size)
        else:
            super().on_chunk(framed, size)

    def on_data(self, pieces: list[bytes], done: bool) -> None:
        """What one read brought."""
        answer = self.answer
        if not self.first_byte and pieces:
            self.first_byte = self.gate.clock()
            if answer.status < 400:
                self._score(Score.SUCCESS, self.first_byte)
        if not done:
            answer.data(pieces, False)
        elif answer.status >= 400:
            answer.data(pieces, True)
            self._score(Score.NEUTRAL)
            self._end("done", "5xx" if answer.status >= 500 else "4xx")
        else:
            self._finish(pieces)

    def _finish(self, pieces: list[bytes]) -> None:
        ending = self.gate.ending(self.target, self.answer, pieces) if self.answer.streamed else "done"
        self.answer.data(pieces, ending != "cut")
        if ending == "cut":
            self._break_off("The worker ended the stream before the answer was complete.")
            return
        self._score(Score.SUCCESS)
        self._end("done", "ok" if ending == "done" else "broken")

    def on_broken(self, connection: Connection, detail: str) -> None:
        """The connection ended before the answer was complete."""
        assert self.lease is not None
        self.connection = None
        worker = self.lease.worker
        if self.answer.started:
            if not is_fault(self.answer.status):  # else it counts already, and once is enough (rulings 2)
                self.gate.bus.emit(WorkerFault(worker.id, "stream", self.id, detail))
            self._break_off("The worker broke off in the middle of its answer.")
        elif connection.reused and not connection.started and self.gate.clock() - self.sent < ROUND_TRIP:
            # It closed an idle connection just as we wrote: nobody's fault, and hardly executed (R022, decision 0001).
            self.journey.move("routed")
            self._connect_anew()
        else:
            self._failed(worker, Score.FAULT, "broken", detail)

    def _break_off(self, message: str) -> None:
        self.answer.break_off(self.gate.error_event(self.target, BrokenStream(message)))
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
        """A limit of ours passed: 504 before the answer began, a broken answer after; no worker is blamed (B40)."""
        self._drop_connection()
        self._score(Score.NEUTRAL)
        error = too_late(what, self.complete)
        if not self.complete:
            self.refuse(error)
        elif self.answer.started:
            self.answer.break_off(self.gate.error_event(self.target, error))
            self._end("failed", "timeout", error.message)
        else:
            self.give_up(error, "timeout")

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
        self._say_no(error)
        self._end("refused", "rejected", error.message, reason_of(error))

    def give_up(self, error: InferaError, outcome: Outcome = "5xx") -> None:
        if self.trip is None or not self.trip.gave_up(error, outcome):
            self._say_no(error)
        self._end("failed", outcome, error.message)

    def _say_no(self, error: InferaError) -> None:
        said = self.gate.refusal(self.target, error)
        self.answer.refuse(said.status, said.body, self.ids() + said.lines)

    def _score(self, score: Score, now: float | None = None) -> None:
        if self.lease is not None and not self.scored:
            self.scored = True
            now = now or self.gate.clock()
            if score is Score.FAULT:  # what fails everywhere is the request's own doing (rulings 2)
                score, self.blamed = (Score.NEUTRAL if self.blamed else score), True
            self.gate.dispatcher.fleet.score(self.lease.worker, score, now)
            if self.trip is not None:
                self.trip.scored(self.lease.worker, score, now)

    def _drop_connection(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abandon()
        connecting, self.connecting = self.connecting, None
        if connecting is not None:
            connecting.cancel()

    def _end(self, state: State, outcome: Outcome, error: str | None = None, reason: Reason | None = None) -> None:
        now = self.gate.clock()
        if self.trip is not None:
            self.trip.ended(outcome)
        lease, self.lease = self.lease, None
        worker = lease.worker if lease is not None else self.ask.tried[-1] if self.ask.tried else None
        if lease is not None:
            lease.settle(now)
        self.connection = None
        self.body = None
        self.journey.move(state)
        self.gate.leave(self, record_of(self, worker.id if worker else None, outcome, error, now, reason))
        self.client.relay_ended(self, now)

    def ids(self) -> bytes:
        """The names of the request, as header lines."""
        return marks.ids(self.id, self.named_session())

    def named_session(self) -> str:
        """The session id that the client is told."""
        if self.session is None:  # refused before its body was read
            self.session = identify(self.head, b"", self.gate.random_bytes)[1]
        return self.session
