"""The router of a simulated fleet: the routing core itself, and what it is told about workers (design.md §4).

`decide`, ledger, pins, scorers and index are those of `infera serve`; here they act in simulated time, and hear of
an engine's cache at once where a server hears by events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from infera_cli.routing.catalogue import Policy
from infera_cli.routing.cost import Speed
from infera_cli.routing.kv import Choice, Held, KvAware, KvBook, KvWeights
from infera_cli.routing.ledger import Lease, Ledger
from infera_cli.routing.nodes import Measured, NodeProfile, Nodes
from infera_cli.routing.pipeline import decide
from infera_cli.routing.prefix import PrefixIndex, Slot, unit_of
from infera_cli.routing.prompt import Prompt
from infera_cli.routing.scheduler import CostScorer
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import Ask, Pool, Scorer, View, Worker, WorkerSpec
from infera_cli.routing.work import Work, output_tokens
from infera_cli.simulator.cache import CacheEvent, Stored
from infera_cli.simulator.engine import EngineModel

STYLE = "sim"
SCRAPE_SECONDS = 5.0
ASSUMED = NodeProfile(speed=Speed.of(312, 2039, 80))
"""One A100, as `serve` assumes where nobody says (replica-router §2.4)."""


class Part(Protocol):
    """A request, as far as a fleet needs to know it; lengths in tokens.

    `chain` names the full blocks of prompt and answer; `names` its messages as prefixes, `sizes` where these
    end, and the first `pinned` of them are the operator's. `think` is in seconds, after the previous answer; `after`
    as well, from the beginning of the conversation.
    """

    @property
    def prompt(self) -> int:
        """Tokens of the prompt."""
    @property
    def output(self) -> int:
        """Tokens of the answer."""
    @property
    def chain(self) -> Sequence[int]:
        """Names of its full blocks."""
    @property
    def names(self) -> tuple[int, ...]:
        """Names of its messages."""
    @property
    def sizes(self) -> tuple[int, ...]:
        """Where these end, in tokens."""
    @property
    def pinned(self) -> int:
        """How many are pinned."""
    @property
    def think(self) -> float:
        """The pause before it."""
    @property
    def after(self) -> float:
        """It comes no earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How to route: `slack` in requests, `ttl` in seconds, as the flags of `serve`; `block` tokens a KV block."""

    policy: Policy
    workers: int
    block: int = 16
    seed: int = 1
    slack: float = 8.0
    ttl: float = 3600.0


class Open:
    """A request on a worker, until `Router.done`."""

    __slots__ = ("held", "lease", "number", "work")

    def __init__(self, lease: Lease, work: Work | None = None, held: Held | None = None) -> None:
        self.lease = lease
        self.number = lease.worker.number
        self.work = work
        self.held = held


class Router:
    """Any policy that needs to know open requests and sessions only."""

    records = False
    """Whether it wants to hear what engines store and remove."""

    def __init__(self, routing: Routing) -> None:
        self.routing = routing
        self.scorer: Scorer | None = None
        self._ledger = Ledger()
        self._pins = Pins(routing.ttl)
        self._dice = Random(routing.seed)  # noqa: S311  # a simulation's, not a secret's
        self._turn = 0
        self.pool = Pool([
            Worker(WorkerSpec(id=f"sim{n}", host="sim", port=1 + n, kv_block_size=routing.block), self._ledger.open())
            for n in range(routing.workers)
        ])

    def send(self, part: Part, session: str | None, now: float) -> Open:
        """Decide, and reserve in the same breath. Raises NoRoutableWorker, AllFull."""
        return Open(self._route(Ask(session=session), now))

    def done(self, one: Open, now: float) -> None:
        """The answer is over."""
        one.lease.settle(now)

    def heard(self, number: int, events: Iterable[CacheEvent], now: float) -> None:
        """What a worker's cache did."""

    def look(self, engines: Sequence[EngineModel], now: float) -> None:
        """Before every decision: the engines may be asked how they are."""

    def _route(self, ask: Ask, now: float) -> Lease:
        view = View(self.pool, self._ledger.outstanding, self._pins, self._turn)
        decision = decide(
            ask, view, self.routing.policy, now=now, dice=self._dice, slack=self.routing.slack, scorer=self.scorer)
        if decision.turn is not None:
            self._turn = decision.turn
        worker = decision.worker
        if not decision.pin or ask.session is None:
            return self._ledger.reserve(worker)
        self._pins.pin(ask.session, worker.id, now, held=True)
        return self._ledger.reserve(worker, ask.session, self._pins)


class KvRouter(Router):
    """`kv-aware`: the index is told by the engines' caches."""

    records = True

    def __init__(self, routing: Routing) -> None:
        super().__init__(routing)
        self._index = NamedIndex()
        self._book = KvBook(self._index)
        self._slots = [self._book.open(worker, STYLE)[0].slot for worker in self.pool.workers]
        for slot in self._slots:
            slot.block_size = routing.block     # as an engine's first event tells
        self._kind = (STYLE, unit_of(routing.block))
        self.scorer = KvAware(self._book, KvWeights())

    def send(self, part: Part, session: str | None, now: float) -> Open:
        """See Router; what the decision promises is held."""
        chain = part.chain[: part.prompt // self.routing.block]
        prompt = Prompt(chains={self._kind: chain}, lengths={STYLE: part.prompt})
        lease = self._route(Ask(session=session, work=prompt), now)
        choice = prompt.choice
        return Open(lease, held=self._book.begin(choice, now) if isinstance(choice, Choice) else None)

    def done(self, one: Open, now: float) -> None:
        """See Router."""
        one.lease.settle(now)
        if one.held is not None:
            one.held.release(now)

    def heard(self, number: int, events: Iterable[CacheEvent], now: float) -> None:
        """See Router."""
        index, slot = self._index, self._slots[number]
        gone: list[int] = []
        for event in events:
            if isinstance(event, Stored):
                index.drop(slot, gone)
                gone.clear()
                index.hold(slot, event.hashes, now)
            else:
                gone.append(event.hash)
        index.drop(slot, gone)


class NamedIndex(PrefixIndex):
    """An index whose blocks come with their final names, so that there is nothing to compute from tokens."""

    def hold(self, slot: Slot, names: Sequence[int], now: float) -> None:
        """The rank stored these blocks."""
        blocks, bit, pending, holders = slot.blocks, slot.bit, slot.pending, self._holders
        slot.used = now
        before = len(blocks)
        for name in names:
            if name in blocks:
                slot.copies[name] = slot.copies.get(name, 0) + 1
                continue
            blocks[name] = name
            if name in holders:
                self._add(name, bit)
            else:
                holders[name] = bit
            if pending:
                pending.pop(name, None)
        self._entries += len(blocks) - before

    def drop(self, slot: Slot, names: Sequence[int]) -> None:
        """One copy of each of these blocks is gone."""
        blocks, copies, bit, holders = slot.blocks, slot.copies, slot.bit, self._holders
        before = len(blocks)
        for name in names:
            if name in copies:
                slot.unlink(name)
                continue
            del blocks[name]
            if holders[name] == bit:
                del holders[name]
            else:
                self._discard(name, bit)
        self._entries -= before - len(blocks)


class CostRouter(Router):
    """`cost`, `prefix-aware` and `adaptive`: all nodes alike, their caches looked at every five seconds."""

    def __init__(self, routing: Routing) -> None:
        super().__init__(routing)
        self._nodes = Nodes(ASSUMED)
        self._cost = self.scorer = CostScorer(self._nodes, routing.policy, self._dice)
        self._look_at = 0.0

    def send(self, part: Part, session: str | None, now: float) -> Open:
        """See Router."""
        nodes = self._nodes
        work = Work(
            prompt=part.prompt, output=output_tokens(part.output), chain=part.names, sizes=part.sizes,
            pinned=part.pinned,
        )
        if work.chain:
            work.known = nodes.residency.known(work.chain)
        lease = self._route(Ask(session=session, work=work), now)
        node = nodes.of(lease.worker)
        if work.chain:
            self._cost.switch.note(bool(work.known), now)
            node.prefix_window.note(lease.worker.number in work.known, now)
        node.tokens += work.tokens
        return Open(lease, work)

    def done(self, one: Open, now: float) -> None:
        """See Router."""
        one.lease.settle(now)
        node, work = self._nodes.of(one.lease.worker), one.work
        node.outcome(True, now)
        if work is not None:
            node.tokens -= work.tokens
            if work.chain:
                self._nodes.residency.learn(one.number, work)

    def look(self, engines: Sequence[EngineModel], now: float) -> None:
        """See Router."""
        if now < self._look_at:
            return
        self._look_at = now + SCRAPE_SECONDS
        for worker, engine in zip(self.pool.workers, engines, strict=True):
            self._nodes.measure(worker, Measured(at=now, kv_used=engine.kv_usage, waiting=engine.waiting))


def router_for(routing: Routing) -> Router:
    """The router that a policy needs."""
    kinds: dict[str, type[Router]] = {"": Router, "tokens": KvRouter, "cost": CostRouter}
    return kinds[routing.policy.scored](routing)
