"""The scheduler between admission and attempt: reads what a request asks, lets it wait, forms static batches.

Waits are a queue a model; whoever frees a place gives it to the best who may go there (replica-router §2.7, §2.8).
Choosing is the dispatcher's, as for every other request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infera_cli.errors import AllFull, FleetError, InferaError, NoRoutableWorker, RequestError
from infera_cli.events import Event, WorkerChanged
from infera_cli.gateway.dispatch import Dispatcher
from infera_cli.gateway.identity import RandomBytes, name
from infera_cli.gateway.ports import Fleet, Lease
from infera_cli.gateway.trip import ScheduledTrip
from infera_cli.protocol import extensions, prompt_text
from infera_cli.protocol.peek import peek_form
from infera_cli.protocol.prompt_text import Asked
from infera_cli.routing.batches import BatchGate
from infera_cli.routing.nodes import SUSPECT_SECONDS, Node
from infera_cli.routing.queue import Queue
from infera_cli.routing.reader import Reader
from infera_cli.routing.scheduler import CostScorer
from infera_cli.routing.types import Ask, Decision, Worker
from infera_cli.routing.work import Work

if TYPE_CHECKING:
    from infera_cli.gateway.relay import Relay

log = logging.getLogger("infera.scheduler")

TICK_SECONDS = 0.1
_GONE = frozenset({"draining", "not_ready", "removed", "stalled"})
_BACK = frozenset({"added", "ready", "restored", "moving", "models", "breaker"})


class HeldLease:
    """A lease that also holds tokens of its node."""

    __slots__ = ("_lease", "_node", "_scheduling", "_tokens", "rank", "worker")

    def __init__(self, lease: Lease, node: Node, tokens: int, scheduling: Scheduling) -> None:
        self.worker = lease.worker
        self.rank = lease.rank
        self._lease = lease
        self._node = node
        self._tokens = tokens
        self._scheduling = scheduling
        node.tokens += tokens

    def settle(self, now: float) -> None:
        """See Lease."""
        self._lease.settle(now)
        self._node.tokens -= self._tokens
        self._scheduling.freed(self.worker)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingOptions:
    """`timeout` is request_timeout_ms in seconds, None where the limits of everybody hold; `batch` the size of static
    batches, None for continuous batching."""

    timeout: float | None = None
    batch: int | None = None


class Scheduling:
    """A gateway.plan.Plan for policies that know nodes. `hold(worker, until, detail)` rests a worker for a while."""

    def __init__(
        self, dispatcher: Dispatcher, scorer: CostScorer, queue: Queue[ScheduledTrip], *, reader: Reader,
        random_bytes: RandomBytes, hold: Callable[[Worker, float, str], None], options: SchedulingOptions,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self.dispatcher = dispatcher
        self.nodes = scorer.nodes
        self.queue = queue
        self.switch = scorer.switch
        self.reader = reader
        self.options = options
        self.clock = clock
        self.hold = hold
        self._adaptive = dispatcher.policy.name == "adaptive"
        self._random_bytes = random_bytes
        self._gates: dict[Worker, BatchGate[ScheduledTrip]] = {}
        self._freed: set[Worker] = set()
        self._warned: set[str] = set()

    @property
    def fleet(self) -> Fleet:
        """Everybody who serves."""
        return self.dispatcher.fleet

    # ── Plan ─────────────────────────────────────────────────────────────────────────────────────────
    def begin(self, relay: Relay) -> None:
        """See Plan. Raises RequestError for a malformed `x-inferact`, and what `attempt` raises."""
        body = relay.body or b""
        asked = Asked(peek_form(body)) if relay.head.is_form else prompt_text.read(body)
        if asked.cut:
            relay.body = extensions.without(body)
            relay.bytes_in = len(relay.body)
        model, relay.session, pin = name(relay.head, asked.peek, self._random_bytes)
        work = self.work(asked)
        relay.trip = ScheduledTrip(self, relay, work, asked.stream)
        relay.ask = Ask(model, pin, (), work)
        if work.affinity is not None:
            self._check_affinity(work.affinity, model)
        relay.attempt(relay.received)

    def work(self, asked: Asked) -> Work:
        """What that body asks of a node."""
        wishes = asked.extensions
        return self.reader.work(
            asked.peek.model, asked.pieces, asked.output, hint=wishes.kv_prefix_hint, affinity=wishes.node_affinity,
            priority=wishes.priority,
        )  # fmt: skip

    async def explained(self, _path: str, body: bytes) -> Work:
        """The Work of a body that is only explained, as an explain.WorkOf; raises RequestError."""
        work = self.work(prompt_text.read(body))
        work.known = self.nodes.residency.known(work.chain)
        return work

    def _check_affinity(self, node: str, model: str | None) -> None:
        member = self.fleet.member(node)
        where = f"{extensions.NAME}.node_affinity"
        if member is None:
            raise RequestError(f"{where} names no node that there is.", param=where)
        if model is not None and member.models and model not in member.models:
            raise RequestError(f"{where}: {node} does not serve that model.", param=where)
        if not member.ready or member.draining or member.stalled:
            raise _resting(node)

    # ── a place for a request ────────────────────────────────────────────────────────────────────────
    def route(self, trip: ScheduledTrip, now: float) -> tuple[Decision, HeldLease]:
        """Decide and reserve, and note what that says of prefixes. Raises AllFull and as Dispatcher.route."""
        work = trip.work
        if work.chain:
            work.known = self.nodes.residency.known(work.chain)
        decision, lease = self.dispatcher.route(trip.relay.ask, now)
        node = self.nodes.of(decision.worker)
        if work.chain:
            if self._adaptive:
                self.switch.note(bool(work.known), now)
            node.prefix_window.note(decision.worker.number in work.known, now)
        if self.nodes.rules.split and ":no-" in decision.why:
            self._warn(decision.why, "no node of the wanted pool can be used: any node of the model serves (%s)")
        return decision, HeldLease(lease, node, work.tokens, self)

    def wait(self, trip: ScheduledTrip, now: float) -> None:
        """Everybody is full. Raises TooManyRequests where the queue is, too."""
        model = trip.relay.ask.model
        trip.waiting = self.queue.put(trip, model, trip.work.priority, now, only=trip.work.affinity)

    def gather(self, trip: ScheduledTrip, decision: Decision, now: float) -> None:
        """Static batching: the request goes with the next batch of its node."""
        size = self.nodes.of(decision.worker).cap(now) or self.options.batch or 1
        gate = self._gates.get(decision.worker)
        if gate is None:
            gate = self._gates[decision.worker] = BatchGate(size, self.nodes.rules.flush)
        gate.size = size
        trip.batch = gate
        trip.decision = decision
        gate.collect(trip, now)
        self._open(gate, now)

    def freed(self, worker: Worker) -> None:
        """A place on that worker is free: whoever waits gets it, once the loop turns."""
        if not self.queue.size and not self._gates:
            return
        if not self._freed:
            asyncio.get_running_loop().call_soon(self._fill)
        self._freed.add(worker)

    def _fill(self) -> None:
        freed, self._freed = self._freed, set()
        now = self.clock()
        for worker in freed:
            gate = self._gates.get(worker)
            if gate is not None:
                self._open(gate, now)
            self._seat(worker, now)

    def _open(self, gate: BatchGate[ScheduledTrip], now: float) -> None:
        for trip in gate.release(now):
            trip.go()

    def _seat(self, worker: Worker, now: float) -> None:
        """Give places on `worker` to those who wait, best first, until it is full."""
        member = self.fleet.member(worker.id)
        if member is None or member.worker is not worker or not self.queue.size:
            return
        models = [None, *member.models] if member.models else self.queue.models
        aside = []
        while (waiting := self.queue.take(models, worker.id, now)) is not None:
            trip = waiting.item
            trip.waiting = None
            try:
                routed = self.route(trip, now)
            except AllFull:
                aside.append(waiting)
                if worker not in trip.relay.ask.tried:
                    break
            except InferaError as error:
                trip.unplaced(error)
            else:
                trip.seat(*routed, now)
        for waiting in reversed(aside):
            waiting.item.waiting = waiting
            self.queue.put_back(waiting)

    # ── what happens to nodes ────────────────────────────────────────────────────────────────────────
    def on_event(self, event: Event) -> None:
        """A listener for the bus."""
        if not isinstance(event, WorkerChanged):
            return
        member = self.fleet.member(event.worker)
        if event.what == "not_ready" and member is not None and self._suspected(member.worker):
            log.warning("%s may have run out of memory: a bare 500 with a full cache, then no answer", event.worker)
        if event.what in {"not_ready", "removed"}:
            self.nodes.cleared(event.worker)
        if event.what == "removed":
            self.nodes.left(event.worker, member.worker if member is not None else None)
        if event.what in _GONE:
            self._later(self._evict, event.worker)
        elif event.what in _BACK and member is not None and self.queue.size:
            self._later(self._seat_now, member.worker)

    def _suspected(self, worker: Worker) -> bool:
        return self.clock() - self.nodes.of(worker).suspected_at <= SUSPECT_SECONDS

    def _later(self, act: Callable[..., None], *values: object) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # before the server runs, nobody waits
            return
        loop.call_soon(act, *values)

    def _seat_now(self, worker: Worker) -> None:
        self._seat(worker, self.clock())

    def _evict(self, worker_id: str) -> None:
        """A node rests: what was not sent to it goes elsewhere, what insists on it is told."""
        now = self.clock()
        for worker in [worker for worker in self._gates if worker.id == worker_id]:
            gate = self._gates[worker]
            for trip in gate.evict():
                trip.reroute(now)
            if not gate.running:
                del self._gates[worker]
        for waiting in self.queue.everybody():
            if waiting.key[1] == worker_id:
                self._refuse(waiting.item, _resting(worker_id))
            elif not self._served(waiting.item.relay.ask.model, now):
                self._refuse(waiting.item, NoRoutableWorker("No node of this model is in rotation.", retry_after=5.0))

    def _refuse(self, trip: ScheduledTrip, error: InferaError) -> None:
        trip.leave_queue()
        trip.unplaced(error)

    def _served(self, model: str | None, now: float) -> bool:
        try:
            self.fleet.view(model, now)
        except FleetError:
            return False
        return True

    def _warn(self, why: str, sentence: str) -> None:
        if why not in self._warned:
            self._warned.add(why)
            log.warning(sentence, why)

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────
    async def run(self) -> None:
        """Flush batches whose time has come, and fill places that time alone made, until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.tick(self.clock())

    def tick(self, now: float) -> None:
        """One round of `run`."""
        for gate in list(self._gates.values()):
            self._open(gate, now)
        if self.queue.size:
            for member in self.fleet.members():
                if member.routable:
                    self._seat(member.worker, now)


def _resting(node: str) -> NoRoutableWorker:
    where = f"{extensions.NAME}.node_affinity"
    return NoRoutableWorker(f"{where}: {node} takes no requests now.", param=where, retry_after=5.0)
