"""The scheduler's own numbers: `inferact_*` families, and what `/status` counts (replica-router §2.10, §2.13).

Counted in batches, away from the requests. Percentiles are kept sorted as they come in, so that asking costs nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from math import ceil
from typing import Protocol

from infera_cli.events import Bus, Event, RequestDone, WorkerChanged
from infera_cli.telemetry.names import Family
from infera_cli.telemetry.page import Page, labels
from infera_cli.telemetry.recorder import Batch
from infera_cli.telemetry.series import Histogram

LATENCY_WINDOW = 300.0
LATENCY_KEPT = 2048
LATENCY_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
OTHER = "other"

REQUESTS = Family(
    "inferact_requests_total", "counter", ("node", "model"), "Requests routed since scheduler start"
)
KV_USED = Family("inferact_kv_cache_used_ratio", "gauge", ("node",), "KV cache utilization (0.0-1.0)")
PREFIX_HITS = Family("inferact_prefix_hit_ratio", "gauge", ("node",), "Prefix cache hit rate (rolling 5m)")
LATENCY = Family("inferact_request_latency_seconds", "histogram", ("node",), "Request latency histogram")
OOM = Family("inferact_oom_events_total", "counter", ("node",), "OOM events recovered by the scheduler")
STALLED = Family("inferact_node_stalled", "gauge", ("node",), "1 while open requests stand still.")
WAITING = Family("inferact_queue_waiting", "gauge", ("model",), "Requests that wait for a place.")

FAMILIES = (REQUESTS, KV_USED, PREFIX_HITS, LATENCY, OOM, STALLED, WAITING)


class LiveNode(Protocol):
    """What the scheduler knows of a node, at the moment of asking."""

    @property
    def id(self) -> str:
        """Its name."""
    @property
    def models(self) -> Sequence[str]:
        """What it serves."""
    @property
    def kv_used(self) -> float | None:
        """0…1, None when unknown."""
    @property
    def prefix_hits(self) -> float | None:
        """0…1 over five minutes, None when nothing was asked."""
    @property
    def oom_events(self) -> int:
        """Recovered ones."""
    @property
    def stalled(self) -> bool:
        """Its open requests stand still."""


class Latencies:
    """Durations of the last 300 s, the newest 2048; `p99` by nearest rank."""

    __slots__ = ("_recent", "_sorted")

    def __init__(self) -> None:
        self._recent: deque[tuple[float, float]] = deque()
        self._sorted: list[float] = []

    def add(self, ended: Sequence[float], seconds: Sequence[float]) -> None:
        """Successful requests, in order of their ends; a whole batch costs one sort of what is nearly sorted."""
        self._recent.extend(zip(ended, seconds, strict=True))
        self._sorted.extend(seconds)
        self._sorted.sort()
        while len(self._recent) > LATENCY_KEPT:
            self._forget_oldest()

    def p99(self, now: float) -> int | None:
        """Whole milliseconds; None when there were none."""
        while self._recent and self._recent[0][0] <= now - LATENCY_WINDOW:
            self._forget_oldest()
        count = len(self._sorted)
        return round(self._sorted[ceil(0.99 * count) - 1] * 1000) if count else None

    def _forget_oldest(self) -> None:
        _ended, seconds = self._recent.popleft()
        del self._sorted[bisect_left(self._sorted, seconds)]


class _Node:
    __slots__ = ("latencies", "latency", "requests")

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}
        self.latency = Histogram(LATENCY_BUCKETS)
        self.latencies = Latencies()


class NodeMetrics:
    """Counts finished requests by the node that answered. `wall` is Unix time in seconds.

    `live` lists the nodes at each scrape, `waiting` who waits, by model.
    """

    def __init__(
        self, bus: Bus, live: Callable[[], Iterable[LiveNode]], waiting: Callable[[], dict[str, int]], *,
        wall: Callable[[], float], flush: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._live = live
        self._waiting = waiting
        self._wall = wall
        self._flush = flush
        self._nodes: dict[str, _Node] = {}
        self._gone_requests = 0
        bus.subscribe(self._hear, WorkerChanged)

    def add(self, batch: Batch) -> None:
        """Count finished requests."""
        models = {node.id: frozenset(node.models) for node in self._live()}
        by_worker: dict[str, list[RequestDone]] = {}
        for done in batch:
            if done.worker in models and done.first_byte is not None:
                by_worker.setdefault(done.worker or "", []).append(done)
        for worker, own in by_worker.items():
            self._count(self._node(worker), own, models[worker])

    def _count(self, node: _Node, batch: Batch, models: frozenset[str]) -> None:
        for model, count in Counter([done.model for done in batch]).items():
            only = next(iter(models)) if len(models) == 1 else OTHER
            name = model if model is not None and model in models else only
            node.requests[name] = node.requests.get(name, 0) + count
        fine = [done for done in batch if done.outcome == "ok"]
        node.latency.observe_all([done.total for done in fine])
        node.latencies.add([done.started + done.total for done in fine], [done.total for done in fine])

    def _node(self, worker: str) -> _Node:
        found = self._nodes.get(worker)
        if found is None:
            found = self._nodes[worker] = _Node()
        return found

    def _hear(self, event: Event) -> None:
        if isinstance(event, WorkerChanged) and event.what == "removed":
            self._flush()
            gone = self._nodes.pop(event.worker, None)
            if gone is not None:
                self._gone_requests += sum(gone.requests.values())

    # ── for /status ──────────────────────────────────────────────────────────────────────────────────
    def flush(self) -> None:
        """Count what has gathered."""
        self._flush()

    def requests(self, worker: str) -> int:
        """Requests that the node answered."""
        return sum(self._node(worker).requests.values())

    def p99_ms(self, worker: str) -> int | None:
        """Its p99 latency over five minutes, in milliseconds."""
        return self._node(worker).latencies.p99(self._wall())

    def total(self) -> int:
        """Requests answered by all nodes there ever were."""
        return self._gone_requests + sum(sum(node.requests.values()) for node in self._nodes.values())

    # ── /metrics ─────────────────────────────────────────────────────────────────────────────────────
    def write(self, *, openmetrics: bool) -> str:
        """All families, as text."""
        page, live = Page(openmetrics=openmetrics), list(self._live())
        page.family(REQUESTS)
        for node in live:
            counted = dict.fromkeys(node.models, 0) | self._node(node.id).requests
            for model, count in counted.items():
                page.sample(labels(REQUESTS.labels, (node.id, model)), count)
        gauges: list[tuple[Family, Callable[[LiveNode], float | None]]] = [
            (KV_USED, lambda node: node.kv_used),
            (PREFIX_HITS, lambda node: node.prefix_hits),
            (OOM, lambda node: node.oom_events),
            (STALLED, lambda node: int(node.stalled)),
        ]
        for family, number_of in gauges:
            page.family(family)
            for node in live:
                number = number_of(node)
                if number is not None:
                    page.sample(labels(family.labels, (node.id,)), number)
        page.family(LATENCY)
        for node in live:
            page.histogram(labels(LATENCY.labels, (node.id,)), self._node(node.id).latency)
        page.family(WAITING)
        for model, count in self._waiting().items():
            page.sample(labels(WAITING.labels, (model,)), count)
        return page.text()


class Exposition(Protocol):
    """A page of metrics."""

    def render(self, accept: str) -> tuple[bytes, str]:
        """The body and its content type."""


class WithNodes:
    """The server's page with the scheduler's families before it; the other one ends the page."""

    def __init__(self, page: Exposition, nodes: NodeMetrics) -> None:
        self._page = page
        self._nodes = nodes

    def render(self, accept: str) -> tuple[bytes, str]:
        """See Exposition."""
        body, content_type = self._page.render(accept)
        return self._nodes.write(openmetrics="openmetrics" in content_type).encode() + body, content_type
