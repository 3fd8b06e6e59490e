"""Chooses a node by cost, and by the prefixes it holds (replica-router §2.5, §2.6, §2.9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from infera_cli.errors import AllFull, NoRoutableWorker
from infera_cli.routing.adaptive import Switch
from infera_cli.routing.catalogue import Policy
from infera_cli.routing.cost import HOLDER_MARGIN, TIE, Cost, cost, pressure
from infera_cli.routing.nodes import Node, Nodes
from infera_cli.routing.pickers import Dice
from infera_cli.routing.types import Ask, Pool, Worker
from infera_cli.routing.work import PLAIN, Work

SPLIT_RATIO = 8
"""Prompts at least so many times as long as their answers belong to the prefill pool (§2.9)."""

NO_NODE = "No node that could take this request is in rotation."


class Weighed(NamedTuple):
    """A candidate: its place in the pool, its node, tokens of the prefix that it holds, its cost."""

    at: int
    node: Node
    held: int
    cost: Cost


class CostScorer:
    """Fulfils `routing.types.Scorer` for the policies cost, prefix-aware and adaptive; and for any other policy of
    the catalogue it keeps nodes at their caps out, and lets that policy choose among the rest."""

    def __init__(self, nodes: Nodes, policy: Policy, dice: Dice) -> None:
        self.nodes = nodes
        self.policy = policy
        self.switch = Switch()
        self._dice = dice

    # ── Scorer ───────────────────────────────────────────────────────────────────────────────────────
    def choose(
        self, ask: Ask, pool: Pool, outstanding: Sequence[int], turn: int, now: float
    ) -> tuple[int, str]:
        """See Scorer. Raises AllFull when all who could serve are at their caps, NoRoutableWorker when none is."""
        work = _work(ask)
        phase, places, split = self._places(work, pool, outstanding, now)
        if work.roomiest:
            return max(places, key=lambda at: self.nodes.of(pool.workers[at]).free_gb(now)), "roomiest"
        if self.policy.scored != "cost":
            return self._by_rule(pool, places, outstanding, turn), split
        if len(places) == 1:
            return places[0], split
        prefixes = self._prefixes_count(now)
        weighed = [self._weigh(work, pool, at, outstanding, now, phase, prefixes) for at in places]
        contenders, word = _holders(weighed) if prefixes and work.known else (weighed, "")
        chosen = _cheapest(contenders, lambda one: _rank(pool, outstanding, turn, one.at))
        return chosen.at, split or word or ("lru" if self.policy.name == "adaptive" and not prefixes else "")

    def refuses(self, ask: Ask, worker: Worker, outstanding: Sequence[int], now: float) -> str | None:
        """See Scorer."""
        work, node = _work(ask), self.nodes.of(worker)
        if work.affinity is not None:
            if work.affinity != worker.id:
                return f"the request wants {work.affinity}"
        elif not node.profile.weight:
            return "weight 0: only by node_affinity"
        return node.full(work, outstanding[worker.number], now, self.nodes.rules.max_kv_usage)

    def terms(
        self, ask: Ask, pool: Pool, outstanding: Sequence[int], now: float
    ) -> Sequence[tuple[str | None, dict[str, float]]]:
        """See Scorer; seconds, tokens and factors by name."""
        work = _work(ask)
        told: list[tuple[str | None, dict[str, float]]] = []
        prefixes = self.policy.scored == "cost" and self._prefixes_count(now)
        for at, worker in enumerate(pool.workers):
            one = self._weigh(work, pool, at, outstanding, now, self._phase(work), prefixes)
            parts = {"prompt_tokens": float(work.prompt), "output_tokens": float(work.output),
                     "cached_tokens": float(one.held)}
            parts |= {name: value for name, value in zip(Cost._fields, one.cost, strict=True) if name != "total"}
            told.append((self.refuses(ask, worker, outstanding, now), parts | {"cost": one.cost.total}))
        return told

    # ── filter ───────────────────────────────────────────────────────────────────────────────────────
    def _places(
        self, work: Work, pool: Pool, outstanding: Sequence[int], now: float
    ) -> tuple[str, Sequence[int], str]:
        """(phase that counts, places of those who may have it, a word about the split)."""
        phase = self._phase(work)
        if phase == "both":
            return phase, self._open(work, pool, range(len(pool.workers)), outstanding, now), ""
        inside = [at for at, worker in enumerate(pool.workers)
                  if self.nodes.of(worker).profile.role in (phase, "both")]
        try:
            return phase, self._open(work, pool, inside, outstanding, now), f"{phase}-pool"
        except AllFull:
            raise
        except NoRoutableWorker:
            everybody = self._open(work, pool, range(len(pool.workers)), outstanding, now)
            return "both", everybody, f"no-{phase}-pool"

    def _phase(self, work: Work) -> str:
        if not self.nodes.rules.split or work.affinity is not None:
            return "both"
        return "prefill" if work.prompt >= SPLIT_RATIO * work.output else "decode"

    def _open(
        self, work: Work, pool: Pool, among: Sequence[int], outstanding: Sequence[int], now: float
    ) -> Sequence[int]:
        nodes, most, full = self.nodes, self.nodes.rules.max_kv_usage, False
        found: list[int] = []
        for at in among:
            worker = pool.workers[at]
            node = nodes.of(worker)
            wanted = node.profile.weight > 0 if work.affinity is None else worker.id == work.affinity
            if not wanted:
                continue
            if node.full(work, outstanding[worker.number], now, most) is None:
                found.append(at)
            else:
                full = True
        if found:
            return found
        raise AllFull("Every node that could take this request is at its cap.") if full else NoRoutableWorker(
            NO_NODE, retry_after=5.0)

    # ── score ────────────────────────────────────────────────────────────────────────────────────────
    def _prefixes_count(self, now: float) -> bool:
        name = self.policy.name
        return name == "prefix-aware" or (name == "adaptive" and self.switch.on(now))

    def _weigh(
        self, work: Work, pool: Pool, at: int, outstanding: Sequence[int], now: float, phase: str, prefixes: bool
    ) -> Weighed:
        worker = pool.workers[at]
        node = self.nodes.of(worker)
        profile, number = node.profile, worker.number
        held = min(work.known.get(number, 0), work.prompt) if prefixes else 0
        return Weighed(at, node, held, cost(
            work, profile.speed, outstanding[number], held=held, cap=node.cap(now),
            pressure=pressure(node.kv_used(now), self.nodes.rules.threshold) if phase != "prefill" else 1.0,
            degraded=node.degraded(now), weight=profile.weight or 1.0, phase=phase,
        ))  # fmt: skip

    def _by_rule(self, pool: Pool, places: Sequence[int], outstanding: Sequence[int], turn: int) -> int:
        if len(places) == len(pool.workers):
            return self.policy.choose(pool, outstanding, turn, self._dice)
        narrow = Pool([pool.workers[at] for at in places], [pool.places[at] for at in places], pool.size)
        return places[self.policy.choose(narrow, outstanding, turn, self._dice)]


def _work(ask: Ask) -> Work:
    return ask.work if isinstance(ask.work, Work) else PLAIN


def _cheapest(weighed: Sequence[Weighed], rank: Callable[[Weighed], tuple[int, int]]) -> Weighed:
    limit = TIE * min([one.cost.total for one in weighed])
    tied = [one for one in weighed if one.cost.total <= limit]
    return tied[0] if len(tied) == 1 else min(tied, key=rank)


def _holders(weighed: Sequence[Weighed]) -> tuple[Sequence[Weighed], str]:
    """Those with the longest known prefix, unless they cost too much; then those with the next longest."""
    limit = HOLDER_MARGIN * min([one.cost.total for one in weighed])
    holders = [one for one in weighed if one.held and one.cost.total <= limit]
    if not holders:
        return weighed, "spread" if any(one.held for one in weighed) else ""
    longest = max([one.held for one in holders])
    return [one for one in holders if one.held == longest], "prefix"


def _rank(pool: Pool, outstanding: Sequence[int], turn: int, at: int) -> tuple[int, int]:
    """Fewest in flight, then rotation; the file's order decides nothing that these leave open."""
    return outstanding[pool.workers[at].number], (pool.places[at] - turn) % pool.size
