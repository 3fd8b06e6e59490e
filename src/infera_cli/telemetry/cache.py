"""What `kv-aware` knows and does, as numbers on the page (infera-wire §8; R080, S52, S53)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from infera_cli.telemetry import cache_names as names
from infera_cli.telemetry.page import Page, labels
from infera_cli.telemetry.series import Histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetNumbers:
    """One rank of one worker, by its `key`. `events` by what became of them, `happenings` of its event stream."""

    key: str
    active: int
    blocks: int
    worker: str = ""
    picks: int = 0
    received: int = 0
    events: Mapping[str, int] = field(default_factory=dict)
    happenings: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftNumbers:
    """Prompt tokens of one worker that were expected to be cached, and those it reported."""

    worker: str
    expected: int
    reported: int
    drifting: bool


Sizes = tuple[Sequence[int], int]
"""Counts per bucket of `cache_names.BLOCK_BUCKETS`, the last for what is above all; and the sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheNumbers:
    """Everything at one moment. `index` are gauges and totals of the index by metric name."""

    targets: Sequence[TargetNumbers] = ()
    drift: Sequence[DriftNumbers] = ()
    pick_hits: Mapping[str, Sizes] = field(default_factory=dict)
    pick_blocks: Mapping[str, Sizes] = field(default_factory=dict)
    retention: Mapping[str, int] = field(default_factory=dict)
    multimodal: int = 0
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    rendered: int = 0
    short: int = 0
    index_bytes: int = 0
    index_blocks: int = 0
    evicted: int = 0
    lapsed: int = 0


class WatchedCache(Protocol):
    """Who can tell."""

    def numbers(self) -> CacheNumbers:
        """As they are now."""


def write_cache(page: Page, known: CacheNumbers | None) -> None:
    """All families; without a cache-aware policy they are empty."""
    numbers = known if known is not None else CacheNumbers()
    _picks(page, numbers)
    _targets(page, numbers.targets)
    _prompts(page, numbers)
    for family, value in (
        (names.INDEX_BYTES, numbers.index_bytes), (names.INDEX_BLOCKS, numbers.index_blocks),
        (names.EVICTED, numbers.evicted), (names.LAPSED, numbers.lapsed),
    ):  # fmt: skip
        page.family(family)
        if known is not None:
            page.sample("", value)
    _drift(page, numbers.drift)


def _picks(page: Page, numbers: CacheNumbers) -> None:
    for family, by_role in ((names.PICK_HITS, numbers.pick_hits), (names.PICK_BLOCKS, numbers.pick_blocks)):
        page.family(family)
        for role, (counts, total) in by_role.items():
            histogram = Histogram(names.BLOCK_BUCKETS)
            histogram.counts, histogram.total = list(counts), float(total)
            page.histogram(labels(("role",), (role,)), histogram)


def _targets(page: Page, targets: Sequence[TargetNumbers]) -> None:
    rows = [(labels(("worker_id",), (target.key,)), target) for target in targets]
    page.family(names.ACTIVE_BLOCKS)
    for pairs, target in rows:
        page.sample(pairs, target.active)
    page.family(names.VIEW_SIZE)
    for pairs, target in rows:
        page.sample(pairs, target.blocks)
    page.family(names.EVENTS)
    for pairs, target in rows:
        page.sample(pairs, target.received)
    page.family(names.EVENTS_UNUSED)
    for pairs, target in rows:
        for reason, count in target.events.items():
            page.sample(f'{pairs},reason="{reason}"', count)
    page.family(names.STREAM)
    for pairs, target in rows:
        for what, count in target.happenings.items():
            page.sample(f'{pairs},what="{what}"', count)


def _prompts(page: Page, numbers: CacheNumbers) -> None:
    page.family(names.RETENTION)
    for hint, count in numbers.retention.items():
        page.sample(labels(("retention",), (hint,)), count)
    page.family(names.SKIPPED)
    page.sample('reason="multimodal"', numbers.multimodal)
    page.family(names.FALLBACKS)
    for cause, count in numbers.fallbacks.items():
        page.sample(labels(("cause",), (cause,)), count)
    page.family(names.RENDERED)
    page.sample("", numbers.rendered)
    page.family(names.SHORT)
    page.sample("", numbers.short)


def _drift(page: Page, drift: Sequence[DriftNumbers]) -> None:
    rows = [(labels(("worker_id",), (one.worker,)), one) for one in drift]
    page.family(names.EXPECTED)
    for pairs, one in rows:
        page.sample(pairs, one.expected)
    page.family(names.REPORTED)
    for pairs, one in rows:
        page.sample(pairs, one.reported)
    page.family(names.DRIFTING)
    for pairs, one in rows:
        page.sample(pairs, int(one.drifting))
