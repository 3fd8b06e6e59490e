"""Nodes as the scheduler knows them: what was configured, what was measured, and what follows from it.

States and numbers: replica-router §2.8, §2.10 and §2.12. Times are seconds of one clock that never goes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Literal, NamedTuple

from infera_cli.routing.adaptive import WINDOW
from infera_cli.routing.cost import CAP_ASSUMED, DEGRADED_FACTOR, LOAD_SCALE, Speed, pressure
from infera_cli.routing.residency import Residency
from infera_cli.routing.types import Pool, Worker
from infera_cli.routing.window import Window
from infera_cli.routing.work import Work

OOM_COOLDOWN = 30.0
OOM_STEP = 30.0
OOM_TWICE = 60.0
OVER_SCRAPES = 3
FAILURE_WINDOW = 60.0
FAILURE_SHARE = 0.2
FAILURE_FEWEST = 5
STALE_METRICS = 30.0
SUSPECT_ABOVE = 0.95
SUSPECT_SECONDS = 10.0
_ROWS_KEPT = 64

Role = Literal["prefill", "decode", "both"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProfile:
    """A node as configured. `cap` is the most requests it takes, None where the engine decides."""

    speed: Speed
    hardware: str = "custom"
    backend: str = "vllm"
    weight: float = 1.0
    role: Role = "both"
    cap: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What an engine said of itself; None where it does not say. `at` is when."""

    at: float
    kv_used: float | None = None
    cache_tokens: int | None = None
    waiting: int | None = None


class Calm(NamedTuple):
    """All that a price needs of a node that nothing is the matter with. `prefill` and `read` are seconds a token and
    parameter, `most` the open requests above which others queue; the engine said that `held` of its `size` tokens
    of cache are used (0 of 0 where it does not say)."""

    prefill: float
    read: float
    weight: float
    most: int
    size: int
    held: float


class Node:
    """One node, live. Reading changes nothing but what time alone changes."""

    __slots__ = (
        "_base", "_cool_until", "_cut", "_cut_at", "_failures", "_last_oom", "calm", "measured", "number",
        "oom_events", "over", "prefix_window", "profile", "suspected_at", "tokens", "worker",
    )  # fmt: skip

    def __init__(self, worker: Worker, profile: NodeProfile) -> None:
        self.worker = worker
        self.number = worker.number
        self.profile = profile
        self.tokens = 0
        """Tokens that requests open through this router hold, or will."""
        self.measured: Measured | None = None
        self.over = 0
        """Scrapes in a row above the eviction threshold."""
        self.oom_events = 0
        """Recovered ones."""
        self.prefix_window = Window(WINDOW)
        self.suspected_at = -inf
        """When an answer last looked like the end of an engine that ran out of memory."""
        self._failures = Window(FAILURE_WINDOW)
        self._cool_until = self._last_oom = -inf
        self._cut: int | None = None
        self._base = 0
        self._cut_at = 0.0
        self.calm: Calm | None = None
        """None while a price takes a closer look: weight 0, failures, an out-of-memory, a cache that fills."""
        self._look()

    # ── how it is ────────────────────────────────────────────────────────────────────────────────────
    def kv_used(self, now: float) -> float | None:
        """Share of the KV cache in use, 0…1; None when unknown, or older than 30 s."""
        measured = self.measured
        return None if measured is None or now - measured.at > STALE_METRICS else measured.kv_used

    def free_gb(self, now: float) -> float:
        """Free memory for the cache: VRAM · (1 − used)."""
        return self.profile.speed.vram_gb * (1 - (self.kv_used(now) or 0.0))

    def degraded(self, now: float) -> bool:
        """Still routable, at twice the cost: after an OOM, three scrapes over the threshold, or failures."""
        return now < self._cool_until or self.over >= OVER_SCRAPES or (self._failures.ever_hit and self._failing(now))

    def cap(self, now: float) -> int | None:
        """The most requests it may have now: as configured, less after an OOM, one more for each 30 s since."""
        if self._cut is None:
            return self.profile.cap
        grown = self._cut + int((now - self._cut_at) // OOM_STEP)
        if grown < self._base:
            return grown
        if now >= self._cool_until:     # all is as it was before
            self._cut = None
            self._look()
        return self.profile.cap

    def price(self, work: Work, held: int, open_requests: int, now: float, threshold: float) -> float:
        """`cost(…).total`, the short way: decisions ask it of each candidate that is not calm."""
        profile = self.profile
        speed, twice, others = profile.speed, 2 * work.params, open_requests + 1
        left, weights, compute = work.prompt - held, twice / speed.reads, twice * others / speed.flops
        step = (weights if weights > compute else compute) * (1 + open_requests / LOAD_SCALE)  # noqa: FURB136 - faster
        total = twice * (left if left > 1 else 1) / speed.flops + work.output * step  # noqa: FURB136 - faster
        cap = (profile.cap if self._cut is None else self.cap(now)) or CAP_ASSUMED
        if others > cap:
            total += (others - cap) / cap * total
        if self.measured is not None:
            total *= pressure(self.kv_used(now), threshold)
        if (self._failures.ever_hit or self.over or self._cut is not None) and self.degraded(now):
            total *= DEGRADED_FACTOR
        return total / (profile.weight or 1.0)

    def full(self, work: Work, open_requests: int, now: float, max_kv_usage: float) -> str | None:
        """Why it takes no more now; None when it does. An idle node takes anything."""
        cap = self.profile.cap if self._cut is None else self.cap(now)
        if cap is not None and open_requests >= cap:
            return f"at its cap of {cap}"
        if self.measured is None or not open_requests or not max_kv_usage:
            return None
        return self._crowded(work, now, max_kv_usage)

    def _crowded(self, work: Work, now: float, most: float) -> str | None:
        measured, used = self.measured, self.kv_used(now)
        if measured is not None and measured.cache_tokens:
            size = measured.cache_tokens
            held = max(self.tokens, (used or 0.0) * size)
            need = work.tokens - min(work.known.get(self.worker.number, 0), work.prompt)
            return f"would have to preempt: {held + need:.0f} of {size} tokens" if held + need > most * size else None
        if used is not None and used >= most and measured is not None and measured.waiting:
            return f"its cache is {used:.0%} full and requests wait"
        return None

    # ── what happens to it ───────────────────────────────────────────────────────────────────────────
    def _look(self) -> None:
        """Whether anything is the matter, for the next price."""
        profile, measured = self.profile, self.measured
        self.calm = None
        if self._cut is not None or self._failures.ever_hit or self.over or not profile.weight:
            return
        size, used = 0, 0.0
        if measured is not None and measured.kv_used is not None:
            size, used = measured.cache_tokens or 0, measured.kv_used
            if not size and measured.waiting:
                return
        speed = profile.speed
        most = CAP_ASSUMED if profile.cap is None else profile.cap
        self.calm = Calm(2 / speed.flops, 2 / speed.reads, profile.weight, most, size, used * size)

    def configure(self, profile: NodeProfile) -> None:
        """The file says something else of it now; what was measured counts again once it is measured again."""
        self.profile = profile
        self._look()
        if self.measured is not None:
            self.calm = None

    def outcome(self, fine: bool, now: float) -> None:
        """A request ended there, well or by the node's fault."""
        self._failures.note(not fine, now)
        if not fine:
            self.calm = None

    def _failing(self, now: float) -> bool:
        count, failures = self._failures.count(now), self._failures.hits(now)
        if not failures:
            self._look()
        return count >= FAILURE_FEWEST and failures >= FAILURE_SHARE * count

    def measure(self, measured: Measured, threshold: float) -> bool:
        """The engine was asked; True when its cache is over the threshold."""
        self.measured = measured
        over = measured.kv_used is not None and measured.kv_used > threshold
        self.over = self.over + 1 if over else 0
        self._look()
        return over

    def suspect(self, now: float) -> None:
        """A bare 500 while the cache was all but full: should a probe fail soon, the log may say why."""
        used = self.kv_used(now)
        if used is not None and used >= SUSPECT_ABOVE:
            self.suspected_at = now

    def out_of_memory(self, open_requests: int, now: float) -> float | None:
        """It ran out of memory with so many requests open: degraded for 30 s, its cap halved.

        Returns until when it must be treated as offline, where this is the second time within 60 s.
        """
        cap = self.cap(now)
        before = cap if cap is not None else max(open_requests, 1)
        self._base = max(before, self.profile.cap or before, self._base if self._cut is not None else 0)
        self._cut, self._cut_at = max(1, before // 2), now
        self._cool_until = now + OOM_COOLDOWN
        self.calm = None
        twice, self._last_oom = now - self._last_oom <= OOM_TWICE, now
        return self._cool_until if twice else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the file says about all nodes. `policy` is lru, prefix-aware or adaptive; `threshold` 0…1."""

    policy: str = "lru"
    threshold: float = 0.9
    pin_system_prompts: bool = True
    max_kv_usage: float = 1.0
    split: bool = False
    static: bool = False
    flush: float = 2.0


class Nodes:
    """All nodes, by worker; one that no file describes gets the `assumed` profile."""

    def __init__(
        self, assumed: NodeProfile, profiles: Mapping[str, NodeProfile] | None = None, rules: Rules | None = None
    ) -> None:
        self.assumed = assumed
        self.rules = rules or Rules()
        self.residency = Residency(pin=self.rules.pin_system_prompts)
        self._profiles = dict(profiles or {})
        self._nodes: dict[Worker, Node] = {}
        self._rows: dict[int, tuple[Pool, tuple[Node, ...]]] = {}

    def row(self, pool: Pool) -> tuple[Node, ...]:
        """The nodes of a pool, in its order."""
        kept = self._rows.get(id(pool))
        if kept is not None:
            return kept[1]
        if len(self._rows) >= _ROWS_KEPT:
            self._rows.clear()
        row = tuple([self.of(worker) for worker in pool.workers])
        self._rows[id(pool)] = pool, row    # the pool is kept, so its id stays its own
        return row

    def of(self, worker: Worker) -> Node:
        """The node of that worker."""
        node = self._nodes.get(worker)
        if node is None:
            node = self._nodes[worker] = Node(worker, self._profiles.get(worker.id, self.assumed))
        return node

    def configure(self, profiles: Mapping[str, NodeProfile], rules: Rules) -> None:
        """The file was read again: weights, hardware and caps change in place, nothing in flight is touched."""
        self._profiles = dict(profiles)
        self.rules = replace(rules, static=self.rules.static)
        self.residency.pin = rules.pin_system_prompts
        for worker, node in self._nodes.items():
            node.configure(self._profiles.get(worker.id, self.assumed))

    def cleared(self, worker_id: str) -> None:
        """A worker of that name went offline or restarted: what it held is gone."""
        for worker in [worker for worker in self._nodes if worker.id == worker_id]:
            self.residency.forget(worker.number)

    def left(self, worker_id: str, present: Worker | None = None) -> None:
        """Workers of that name are gone, but for the one that is there now."""
        for worker in [worker for worker in self._nodes if worker.id == worker_id and worker is not present]:
            self.residency.forget(worker.number)
            del self._nodes[worker]
        self._rows.clear()

    def measure(self, worker: Worker, measured: Measured) -> None:
        """An engine was asked how it is."""
        if self.of(worker).measure(measured, self.rules.threshold):
            self.residency.shed(worker.number, measured.at)
