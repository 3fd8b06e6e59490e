"""One scheduled request's companion: where it waits, how its attempts went, and what an out-of-memory means for it.

(Source: replica-router §2.10 for limits, §2.12 for out-of-memory.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infera_cli.errors import AllFull, InferaError, TooManyRequests
from infera_cli.events import Outcome
from infera_cli.gateway.memory_guard import MemoryGuard
from infera_cli.gateway.ports import Lease
from infera_cli.gateway.refusals import unreachable
from infera_cli.gateway.upstream.http import LENGTH
from infera_cli.gateway.upstream.receiver import Receiver
from infera_cli.protocol.headers import AnswerHead
from infera_cli.routing.batches import BatchGate
from infera_cli.routing.health import Score
from infera_cli.routing.queue import Waiting
from infera_cli.routing.types import Decision, Worker
from infera_cli.routing.work import Work

if TYPE_CHECKING:
    from infera_cli.gateway.relay import Relay
    from infera_cli.gateway.scheduling import Scheduling

Kept = tuple[int, AnswerHead, bytes]
"""Status, head and body of an answer that was held back."""


class ScheduledTrip:
    """A gateway.plan.Trip. `failed_on` is the worker that ran out of memory with this request; `kept` its answer, for
    the client, should nobody do better."""

    __slots__ = (
        "_scheduling", "batch", "decision", "failed_on", "kept", "limit", "relay", "stream", "waiting", "work",
    )  # fmt: skip

    def __init__(self, scheduling: Scheduling, relay: Relay, work: Work, stream: bool) -> None:
        self._scheduling = scheduling
        self.relay = relay
        self.work = work
        self.stream = stream
        self.limit = scheduling.options.timeout
        self.waiting: Waiting[ScheduledTrip] | None = None
        self.batch: BatchGate[ScheduledTrip] | None = None
        self.decision: Decision | None = None
        self.failed_on: Worker | None = None
        self.kept: Kept | None = None

    # ── Trip ─────────────────────────────────────────────────────────────────────────────────────────
    @property
    def stays(self) -> bool:
        """It insists on its node, or was sent elsewhere once already after an out-of-memory."""
        return self.work.affinity is not None or self.failed_on is not None

    def route(self, now: float) -> None:
        """See Trip: seated, gathered for a batch, or waiting."""
        try:
            decision, lease = self._scheduling.route(self, now)
        except AllFull:
            try:
                self._scheduling.wait(self, now)
            except TooManyRequests:
                if self.relay.ask.tried:  # it may be told that nobody was left, but no longer to come again
                    raise AllFull("Every other node is at its cap, and so is the queue.") from None
                raise
            return
        self.seat(decision, lease, now)

    def receiver(self, relay: Relay) -> Receiver:
        """See Trip: answers are looked into before they are passed on."""
        return MemoryGuard(relay, self)

    def overdue(self, now: float) -> str:
        """request_timeout_ms: all of an unary answer; of a stream its first byte, then each gap."""
        relay, limit = self.relay, self.limit or 0.0
        if not self.stream or not relay.first_byte:
            return "request" if now - relay.started > limit else ""
        return "stream" if now - relay.moved > limit else ""

    def scored(self, worker: Worker, score: Score, now: float) -> None:
        """See Trip."""
        nodes = self._scheduling.nodes
        nodes.of(worker).outcome(score is not Score.FAULT and score is not Score.UNREACHABLE, now)
        if score is Score.SUCCESS and self.work.chain:
            nodes.residency.learn(worker.number, self.work)

    def gave_up(self, _error: InferaError, outcome: Outcome) -> bool:
        """See Trip: the engine's own last words are better than ours."""
        kept, self.kept = self.kept, None
        if kept is None or outcome != "5xx":
            return False
        status, head, body = kept
        answer = self.relay.answer
        answer.begin(status, head, LENGTH, len(body), self.relay.ids())
        answer.data([body] if body else [], True)
        return True

    def ended(self, outcome: Outcome) -> None:
        """See Trip."""
        if self.waiting is not None:
            self.leave_queue()
        if self.batch is not None:
            self.batch.finished(self)
            if self.relay.lease is not None:
                self._scheduling.freed(self.relay.lease.worker)
        if self.failed_on is not None and outcome == "ok":
            self._scheduling.nodes.of(self.failed_on).oom_events += 1
        self.relay.trip = None      # the two know each other: parted, they go at once, not when somebody looks

    # ── for the scheduler ────────────────────────────────────────────────────────────────────────────
    def seat(self, decision: Decision, lease: Lease, now: float) -> None:
        """A place was reserved: send at once, or with the next batch."""
        self.relay.lease = lease
        if self._scheduling.options.batch is None:
            self.relay.placed(decision)
        else:
            self._scheduling.gather(self, decision, now)

    def go(self) -> None:
        """The batch leaves."""
        decision, self.decision = self.decision, None
        if decision is not None and not self.relay.response_complete:
            self.relay.placed(decision)

    def reroute(self, now: float) -> None:
        """Its node rests before the batch was sent."""
        lease, self.relay.lease = self.relay.lease, None
        self.batch = self.decision = None
        if lease is not None:
            lease.settle(now)
        try:
            self.relay.attempt(now)
        except InferaError as error:
            self.unplaced(error)

    def unplaced(self, error: InferaError) -> None:
        """Nobody will take it any more."""
        tried = self.relay.ask.tried
        if tried:
            self.relay.give_up(unreachable(tried[-1], "status"))
        else:
            self.relay.refuse(error)

    def leave_queue(self) -> None:
        """It waits no more."""
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            self._scheduling.queue.drop(waiting)

    # ── out of memory ────────────────────────────────────────────────────────────────────────────────
    def ran_out_of_memory(self, kept: Kept | None) -> bool:
        """The worker of this attempt did; True when the request was handed to another one, so that nothing of the
        answer must be passed on. `kept` is the answer where it is complete."""
        relay = self.relay
        lease = relay.lease
        if lease is None:
            return False
        self.note_out_of_memory()
        if relay.answer.started or not relay.can_go_elsewhere(lease.worker):
            return False
        self.failed_on, self.kept, self.work.roomiest = lease.worker, kept, True
        relay.turn_away("out_of_memory")
        return True

    def note_out_of_memory(self) -> None:
        """Remember it of the node: its cap is halved, what it held is gone."""
        lease, scheduling = self.relay.lease, self._scheduling
        if lease is None:
            return
        worker, now = lease.worker, scheduling.clock()
        member = scheduling.fleet.member(worker.id)
        scheduling.nodes.residency.forget(worker.number)
        until = scheduling.nodes.of(worker).out_of_memory(member.outstanding if member is not None else 1, now)
        if until is not None:
            scheduling.hold(worker, until, "out of memory twice within a minute")

    def suspect(self) -> None:
        """A 500 that says nothing."""
        lease, scheduling = self.relay.lease, self._scheduling
        if lease is not None:
            scheduling.nodes.of(lease.worker).suspect(scheduling.clock())
