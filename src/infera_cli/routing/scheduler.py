"""Chooses a node by cost, and by the prefixes it holds (replica-router §2.5, §2.6, §2.9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from infera_cli.errors import AllFull, NoRoutableWorker
from infera_cli.routing.adaptive import Switch
from infera_cli.routing.catalogue import Policy
from infera_cli.routing.cost import HOLDER_MARGIN, LOAD_SCALE, TIE, Cost, cost, pressure
from infera_cli.routing.nodes import Node, Nodes
from infera_cli.routing.pickers import Dice
from infera_cli.routing.types import Ask, Pool, Worker
from infera_cli.routing.work import PLAIN, Work

SPLIT_RATIO = 8
"""Prompts at least so many times as long as their answers belong to the prefill pool (§2.9)."""

NO_NODE = "No node that could take this request is in rotation."


class CostScorer:
    """Fulfils `routing.types.Scorer` for the policies cost, prefix-aware and adaptive; and for any other policy of
    the catalogue it keeps nodes at their caps out, and lets that policy choose among the rest."""

    def __init__(self, nodes: Nodes, policy: Policy, dice: Dice) -> None:
        self.nodes = nodes
        self.policy = policy
        self.switch = Switch()
        self._dice = dice
        self._always = policy.name == "prefix-aware"
        self._sometimes = policy.name == "adaptive"

    # ── Scorer ───────────────────────────────────────────────────────────────────────────────────────
    def choose(
        self, ask: Ask, pool: Pool, outstanding: Sequence[int], turn: int, now: float
    ) -> tuple[int, str]:
        """See Scorer. Raises AllFull when all who could serve are at their caps, NoRoutableWorker when none is."""
        work = _work(ask)
        if self.policy.scored == "cost" and not self.nodes.rules.split and not work.roomiest:
            return self._cheapest(work, pool, None, outstanding, turn, now, "both")
        phase, places, split = self._places(work, pool, outstanding, now)
        if work.roomiest:
            return max(places, key=lambda at: self.nodes.of(pool.workers[at]).free_gb(now)), "roomiest"
        if self.policy.scored != "cost":
            return self._by_rule(pool, places, outstanding, turn), split
        at, word = self._cheapest(work, pool, places, outstanding, turn, now, phase)
        return at, split or word

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
        for worker in pool.workers:
            held = min(work.known.get(worker.number, 0), work.prompt) if prefixes else 0
            one = self._cost(work, self.nodes.of(worker), held, outstanding, now, self._phase(work))
            parts = {"prompt_tokens": float(work.prompt), "output_tokens": float(work.output),
                     "cached_tokens": float(held)}
            parts |= {name: value for name, value in zip(Cost._fields, one, strict=True) if name != "total"}
            told.append((self.refuses(ask, worker, outstanding, now), parts | {"cost": one.total}))
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
            if not _is_wanted(work, worker, node):
                continue
            if node.full(work, outstanding[worker.number], now, most) is None:
                found.append(at)
            else:
                full = True
        if not found:
            raise _nobody(full)
        return found

    # ── score ────────────────────────────────────────────────────────────────────────────────────────
    def _prefixes_count(self, now: float) -> bool:
        return self._always or (self._sometimes and self.switch.on(now))

    def _cheapest(
        self, work: Work, pool: Pool, among: Sequence[int] | None, outstanding: Sequence[int], turn: int, now: float,
        phase: str,
    ) -> tuple[int, str]:  # fmt: skip
        """The place of `among`, of everybody where that is None, that serves, and a word for the log. Raises as
        `_open`."""
        prefixes = self._always or (self._sometimes and self.switch.on(now))
        known = work.known if prefixes else _UNKNOWN
        row = self.nodes.row(pool)
        if among is not None:
            row = tuple([row[at] for at in among])
        totals = self._totals(work, row, known, outstanding, now, phase)
        limit = inf
        for total in totals:
            if total < limit:  # noqa: PLR1730 - faster
                limit = total
        if limit == inf:
            everybody = range(len(pool.workers))
            self._open(work, pool, everybody if among is None else among, outstanding, now)    # raises, and says why
        holds: list[int] | None = None
        longest, word = 0, "lru" if self._sometimes and not prefixes else ""
        if known:
            holds = [known.get(node.number, 0) for node in row]
            limit, longest, word = _holders(totals, holds, HOLDER_MARGIN * limit)
        limit *= TIE
        best = fewest = soonest = -1
        for i, total in enumerate(totals):
            if total > limit or (longest and holds is not None and holds[i] != longest):
                continue
            at, count = i if among is None else among[i], outstanding[row[i].number]
            if best < 0 or count <= fewest:
                soon = (pool.places[at] - turn) % pool.size
                if best < 0 or count < fewest or soon < soonest:
                    best, fewest, soonest = at, count, soon
        return best, word

    def _totals(
        self, work: Work, row: tuple[Node, ...], known: dict[int, int], outstanding: Sequence[int], now: float,
        phase: str,
    ) -> list[float]:  # fmt: skip
        """What each of `row` would cost, inf for those that must not have it.

        This is `cost(…).total`, without a call where a node is calm: it is asked of every node for every request.
        """
        totals: list[float] = []
        apart, most = phase != "both" or work.affinity is not None, self.nodes.rules.max_kv_usage
        prompt, output, params, tokens = work.prompt, work.output, work.params, work.prompt + work.output
        left = prompt
        for node in row:
            count, calm = outstanding[node.number], node.calm
            if known:
                left = prompt - known.get(node.number, 0)
                if left < 1:  # noqa: PLR1730 - faster
                    left = 1
            if calm is None or apart or count >= calm[3] or (
                calm[4] and count and max(node.tokens, calm[5]) + tokens > most * calm[4]
            ):  # fmt: skip
                totals.append(self._closely(work, node, known, outstanding, now, phase))
            else:
                prefill, read, weight, _, _, _ = calm
                compute = prefill * (count + 1)
                step = (read if read > compute else compute) * (1 + count / LOAD_SCALE)  # noqa: FURB136 - faster
                totals.append(params * (left * prefill + output * step) / weight)
        return totals

    def _closely(
        self, work: Work, node: Node, known: Mapping[int, int], outstanding: Sequence[int], now: float, phase: str
    ) -> float:
        count, rules = outstanding[node.number], self.nodes.rules
        if not _is_wanted(work, node.worker, node) or node.full(work, count, now, rules.max_kv_usage) is not None:
            return inf
        held = min(known.get(node.number, 0), work.prompt)
        if phase != "both":
            return self._cost(work, node, held, outstanding, now, phase).total
        return node.price(work, held, count, now, rules.threshold)

    def _cost(
        self, work: Work, node: Node, held: int, outstanding: Sequence[int], now: float, phase: str
    ) -> Cost:
        profile = node.profile
        return cost(
            work, profile.speed, outstanding[node.worker.number], held=held, cap=node.cap(now),
            pressure=pressure(node.kv_used(now), self.nodes.rules.threshold) if phase != "prefill" else 1.0,
            degraded=node.degraded(now), weight=profile.weight or 1.0, phase=phase,
        )  # fmt: skip

    def _by_rule(self, pool: Pool, places: Sequence[int], outstanding: Sequence[int], turn: int) -> int:
        if len(places) == len(pool.workers):
            return self.policy.choose(pool, outstanding, turn, self._dice)
        narrow = Pool([pool.workers[at] for at in places], [pool.places[at] for at in places], pool.size)
        return places[self.policy.choose(narrow, outstanding, turn, self._dice)]


def _work(ask: Ask) -> Work:
    return ask.work if isinstance(ask.work, Work) else PLAIN


_UNKNOWN: dict[int, int] = {}


def _is_wanted(work: Work, worker: Worker, node: Node) -> bool:
    """The node that the request insists on; else any that has a weight."""
    return node.profile.weight > 0 if work.affinity is None else worker.id == work.affinity


def _nobody(full: bool) -> NoRoutableWorker:
    if full:
        return AllFull("Every node that could take this request is at its cap.")
    return NoRoutableWorker(NO_NODE, retry_after=5.0)


def _holders(totals: list[float], holds: list[int], limit: float) -> tuple[float, int, str]:
    """(least cost, tokens held, a word) of those with the longest known prefix that cost no more than `limit`; of
    all, and 0, where none of these holds any."""
    longest, least = 0, inf
    for at, total in enumerate(totals):
        if total <= limit:
            held = holds[at]
            if held > longest:
                longest, least = held, total
            elif held == longest and total < least:
                least = total
    if longest:
        return least, longest, "prefix"
    return least, 0, "spread" if any(holds) else ""
