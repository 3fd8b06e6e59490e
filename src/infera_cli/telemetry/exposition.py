"""Puts the numbers of `Metrics` and of the live fleet on a page, family by family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from infera_cli.telemetry import names
from infera_cli.telemetry.cache import TargetNumbers, write_cache
from infera_cli.telemetry.page import Page, labels
from infera_cli.telemetry.series import Histogram, Served
from infera_cli.telemetry.watched import WatchedPool, WatchedSource, WatchedWorker

if TYPE_CHECKING:
    from infera_cli.telemetry.metrics import Metrics

_BREAKER = {"closed": 0, "half_open": 1, "open": 2}
_ROLES = ("mixed", "prefill", "decode")


def write(metrics: Metrics, *, openmetrics: bool) -> str:
    """Everything but the process metrics, which also end the page."""
    page = Page(openmetrics=openmetrics)
    members = metrics.watched.fleet.members()
    _requests(page, metrics)
    _served(page, metrics)
    cache = metrics.watched.cache.numbers() if metrics.watched.cache is not None else None
    _picks(page, members, cache.targets if cache is not None else ())
    _workers(page, members)
    _router(page, metrics)
    write_cache(page, cache)
    _connections(page, list(metrics.watched.pools()), {member.worker.id for member in members})
    return page.text()


def _requests(page: Page, metrics: Metrics) -> None:
    page.family(names.DURATION)
    for wire, histogram in sorted(metrics.durations.items()):
        page.histogram(labels(names.DURATION.labels, wire), histogram)
    page.family(names.INFLIGHT)
    direct = metrics.watched.direct()
    for router, count in (("mixed", metrics.watched.inflight() - direct), ("direct", direct)):
        page.sample(labels(names.INFLIGHT.labels, (router,)), count)
    page.family(names.REQUESTS)
    for (model, worker), served in metrics.served.items():
        pairs = labels(("model", "worker_id"), (model, worker))
        for outcome, count in served.outcomes.items():
            page.sample(f'{pairs},outcome="{outcome}"', count)
    for (model, outcome), count in metrics.unserved.items():
        page.sample(labels(names.REQUESTS.labels, (model, "", outcome)), count)
    _counted(page, names.REJECTED, metrics.rejected)


def _served(page: Page, metrics: Metrics) -> None:
    rows = [(labels(("model", "worker_id"), pair), served) for pair, served in metrics.served.items()]
    histograms: list[tuple[names.Family, Callable[[Served], Histogram]]] = [
        (names.SERVED_DURATION, lambda served: served.duration),
        (names.FIRST_TOKEN, lambda served: served.first_token),
        (names.GAP, lambda served: served.gap),
    ]
    counters: list[tuple[names.Family, Callable[[Served], int]]] = [
        (names.PROMPT_TOKENS, lambda served: served.prompt),
        (names.COMPLETION_TOKENS, lambda served: served.completion),
        (names.CACHED_TOKENS, lambda served: served.cached),
        (names.RETRIES, lambda served: served.retries),
    ]
    for family, histogram_of in histograms:
        page.family(family)
        for pairs, served in rows:
            page.histogram(pairs, histogram_of(served))
    for family, number_of in counters:
        page.family(family)
        for pairs, served in rows:
            page.sample(pairs, number_of(served))


def _picks(page: Page, members: Sequence[WatchedWorker], targets: Sequence[TargetNumbers]) -> None:
    """By target key where ranks are chosen (infera-wire §4.3), else by worker, under every policy."""
    ranks: dict[str, list[TargetNumbers]] = {}
    for target in targets:
        if target.key != target.worker:
            ranks.setdefault(target.worker, []).append(target)
    page.family(names.PICKS)
    for member in members:
        picks = [(target.key, target.picks) for target in ranks.get(member.worker.id, ())]
        for key, count in picks or [(member.worker.id, member.routed)]:
            page.sample(labels(names.PICKS.labels, (member.spec.role, key)), count)


def _workers(page: Page, members: Sequence[WatchedWorker]) -> None:
    page.family(names.ACTIVE)
    active = Counter(member.spec.role for member in members if member.ready and not member.draining)
    for role in _ROLES:
        page.sample(labels(names.ACTIVE.labels, (role,)), active[role])
    rows = [(labels(("worker_id",), (member.worker.id,)), member) for member in members]
    numbers: list[tuple[names.Family, Callable[[WatchedWorker], int]]] = [
        (names.BREAKER_STATE, lambda member: _BREAKER.get(member.breaker, 0)),
        (names.BREAKER_TRIPS, lambda member: member.breaker_trips),
        (names.WORKER_INFLIGHT, lambda member: member.outstanding),
        (names.WORKER_READY, lambda member: int(member.ready)),
        (names.WORKER_DRAINING, lambda member: int(member.draining)),
    ]
    for family, number_of in numbers:
        page.family(family)
        for pairs, member in rows:
            page.sample(pairs, number_of(member))


def _router(page: Page, metrics: Metrics) -> None:
    page.family(names.WORKER_FAULTS)
    for fault, count in metrics.faults.items():
        page.sample(labels(names.WORKER_FAULTS.labels, fault), count)
    page.family(names.STAGES)
    for stage, histogram in metrics.stages.items():
        page.histogram(labels(names.STAGES.labels, (stage,)), histogram)
    counters = metrics.watched.fleet.counters()
    page.family(names.SESSIONS)
    page.sample("", counters["sessions"])
    page.family(names.AFFINITY_HITS)
    page.sample("", counters["affinity_hits"])
    _counted(page, names.RELOADS, metrics.reloads)
    _sources(page, metrics.watched.sources)
    page.family(names.LAG)
    page.histogram("", metrics.lag)
    page.family(names.BUILD)
    page.sample(labels(names.BUILD.labels, (metrics.version,)), 1)


def _sources(page: Page, sources: Sequence[WatchedSource]) -> None:
    columns: list[tuple[names.Family, Callable[[WatchedSource], int]]] = [
        (names.SOURCE_STALE, lambda source: source.stale),
        (names.RECORDS_REFUSED, lambda source: source.refused),
        (names.DISCOVERY_RECONNECTS, lambda source: source.reconnects),
    ]
    for family, read in columns:
        page.family(family)
        for source in sources:
            page.sample(labels(family.labels, (source.name,)), int(read(source)))


def _connections(page: Page, pools: Sequence[WatchedPool], workers: set[str]) -> None:
    rows = [(labels(("worker_id",), (pool.spec.id,)), pool) for pool in pools if pool.spec.id in workers]
    page.family(names.CONNECTIONS)
    for pairs, pool in rows:
        page.sample(f'{pairs},state="busy"', pool.open_count - pool.idle_count)
        page.sample(f'{pairs},state="idle"', pool.idle_count)
    page.family(names.CONNECTIONS_CREATED)
    for pairs, pool in rows:
        page.sample(pairs, pool.created)
    page.family(names.CONNECTIONS_REUSED)
    for pairs, pool in rows:
        page.sample(pairs, pool.taken_again)


def _counted(page: Page, family: names.Family, numbers: Mapping[str, int]) -> None:
    page.family(family)
    for value, count in numbers.items():
        page.sample(labels(family.labels, (value,)), count)
