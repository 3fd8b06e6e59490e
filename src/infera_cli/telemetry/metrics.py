"""Counts finished requests in batches, reads live numbers at the scrape, forgets workers that left.

Names are in `names`; R175, R176, R179, C37, S53 say what goes wrong elsewhere.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from operator import attrgetter
from typing import TypeVar, get_args

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from infera_cli.events import Bus, Event, Reason, Reloaded, RequestDone, WorkerChanged, WorkerFault
from infera_cli.telemetry import exposition
from infera_cli.telemetry.names import LAG_BUCKETS, REQUEST_BUCKETS, STAGE_BUCKETS
from infera_cli.telemetry.recorder import Batch
from infera_cli.telemetry.series import Histogram, Served
from infera_cli.telemetry.watched import Watched

_K = TypeVar("_K")

OTHER = "other"
ROUTERS = ("mixed", "direct")
"""The second for requests that named their worker, whose `why` is that word."""
_MAX_MODELS = 1000

_WIRE_OUTCOMES = ("ok", "4xx", "5xx", "error")
_SAME = frozenset({"ok", "4xx", "5xx"})


class Metrics:
    """All numbers of one router. `add` takes batches of finished requests; `render` answers a scrape.

    `flush` is called before each scrape, so that what just happened is seen.
    """

    def __init__(
        self, bus: Bus, watched: Watched, *, version: str, flush: Callable[[], None] = lambda: None
    ) -> None:
        self.watched = watched
        self.version = version
        self.flush = flush
        self.served: dict[tuple[str, str], Served] = {}
        self.durations = {(ROUTERS[0], outcome): Histogram(REQUEST_BUCKETS) for outcome in _WIRE_OUTCOMES}
        self.stages = {stage: Histogram(STAGE_BUCKETS) for stage in ("queue", "pick", "connect")}
        self.rejected = dict.fromkeys(get_args(Reason), 0)
        self.unserved: Counter[tuple[str, str]] = Counter()
        self.faults: Counter[tuple[str, str]] = Counter()
        self.reloads = {"ok": 0, "refused": 0}
        self.lag = Histogram(LAG_BUCKETS)
        self._process = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._process)
        bus.subscribe(self._hear, WorkerFault, WorkerChanged, Reloaded)

    # ── counting ─────────────────────────────────────────────────────────────────────────────────────
    def add(self, batch: Batch) -> None:
        """Count finished requests."""
        known = Known(self.watched)
        for wire, same in _grouped(batch, _by_router_and_outcome).items():
            self._duration(wire).observe_all([done.total for done in same])
        rejected = [done for done in batch if done.outcome == "rejected"]
        for done in rejected:
            self.rejected[done.reason or OTHER] += 1
        self._unserved(known, rejected)
        self._relayed(known, [done for done in batch if done.outcome != "rejected"] if rejected else batch)

    def _relayed(self, known: Known, batch: Batch) -> None:
        for (model, worker), group in _grouped(batch, _by_model_and_worker).items():
            if worker in known.workers:
                self.series(known.model(model), worker).add(group)
            else:
                self._unserved(known, group)
        spans = [
            (done.received, done.picked, done.sent)
            for done in batch
            if done.received is not None and done.picked is not None and done.sent is not None
            and not done.retries
        ]  # fmt: skip
        self.stages["queue"].observe_all([received for received, _, _ in spans])
        self.stages["pick"].observe_all([picked - received for received, picked, _ in spans])
        self.stages["connect"].observe_all([sent - picked for _, picked, sent in spans])

    def _unserved(self, known: Known, group: Batch) -> None:
        self.unserved.update((known.model(done.model), done.outcome) for done in group)

    def _duration(self, wire: tuple[str, str]) -> Histogram:
        found = self.durations.get(wire)
        if found is None:
            found = self.durations[wire] = Histogram(REQUEST_BUCKETS)
        return found

    def series(self, model: str, worker: str) -> Served:
        """The numbers of one worker for one model, at zero when they are new."""
        found = self.served.get((model, worker))
        if found is None:
            found = self.served[(model, worker)] = Served()
        return found

    def observe_lag(self, seconds: float) -> None:
        """The event loop was held up for so long."""
        self.lag.observe(seconds)

    def _hear(self, event: Event) -> None:
        kind = type(event)
        if kind is RequestDone:
            return
        if isinstance(event, WorkerFault):
            self.faults[event.worker, event.reason] += 1
        elif isinstance(event, WorkerChanged) and event.what == "removed":
            self.flush()
            self.forget(event.worker)
        elif isinstance(event, Reloaded):
            self.reloads["refused" if event.error else "ok"] += 1

    def forget(self, worker: str) -> None:
        """Drop every series of a worker that left (S53)."""
        for pair in [pair for pair in self.served if pair[1] == worker]:
            del self.served[pair]
        for fault in [fault for fault in self.faults if fault[0] == worker]:
            del self.faults[fault]

    # ── showing ──────────────────────────────────────────────────────────────────────────────────────
    def render(self, accept: str) -> tuple[bytes, str]:
        """The page and its content type: OpenMetrics where `accept` prefers it, else the plain text."""
        self.flush()
        self._prepare()
        encode, content_type = choose_encoder(accept)
        page = exposition.write(self, openmetrics="openmetrics" in content_type)
        return page.encode() + encode(self._process), content_type

    def _prepare(self) -> None:
        """Zero what should be there and is not; drop what belongs to nobody."""
        known = Known(self.watched)
        for worker in {pair[1] for pair in self.served} | {fault[0] for fault in self.faults}:
            if worker not in known.workers:
                self.forget(worker)
        for member in self.watched.fleet.members():
            for model in member.models:
                self.series(known.model(model), member.worker.id)


class Known:
    """Names that may become labels now."""

    def __init__(self, watched: Watched) -> None:
        members = watched.fleet.members()
        self.workers = frozenset(member.worker.id for member in members)
        models = dict.fromkeys(model for member in members for model in member.models)
        self._models = frozenset(list(models)[:_MAX_MODELS])
        self._only = next(iter(models)) if len(models) == 1 else OTHER

    def model(self, name: str | None) -> str:
        """`name` if a worker lists it; the only model there is when the request named none; else `other`."""
        if name is None:
            return self._only
        return name if name in self._models else OTHER


def wire_outcome(done: RequestDone) -> str:
    """The outcome label of infera-wire §8: ok, 4xx, 5xx, error, or the status that we answered ourselves."""
    outcome = done.outcome
    if outcome == "rejected":
        return str(done.status)
    return outcome if outcome in _SAME else "error"


def _by_router_and_outcome(done: RequestDone) -> tuple[str, str]:
    return ROUTERS[done.why == "direct"], wire_outcome(done)


_by_model_and_worker = attrgetter("model", "worker")


def _grouped(batch: Batch, key: Callable[[RequestDone], _K]) -> dict[_K, list[RequestDone]]:
    groups: dict[_K, list[RequestDone]] = defaultdict(list)
    for done in batch:
        groups[key(done)].append(done)
    return groups
