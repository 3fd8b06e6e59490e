"""The state of `kv-aware`, as telemetry shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infera_cli.fleet.kv_feed.counters import FeedCounters
from infera_cli.routing.kv import Target
from infera_cli.telemetry.cache import CacheNumbers, DriftNumbers, TargetNumbers

if TYPE_CHECKING:
    from infera_cli.wiring.cache import CacheAware


def cache_numbers(cache: CacheAware) -> CacheNumbers:
    """Everything at this moment."""
    feed = cache.feed.counters if cache.feed is not None else {}
    prompts = cache.reader.counters
    return CacheNumbers(
        targets=[_target(target, feed.get(target.key) or FeedCounters()) for target in cache.book.targets()],
        drift=[
            DriftNumbers(worker=worker, expected=watch.expected, reported=watch.reported, drifting=watch.drifting)
            for worker, watch in cache.drift.workers.items()
        ],
        pick_hits={role: (sizes.counts, sizes.total) for role, sizes in cache.picks.hits.items()},
        pick_blocks={role: (sizes.counts, sizes.total) for role, sizes in cache.picks.blocks.items()},
        retention=prompts.retention, multimodal=prompts.multimodal, fallbacks=prompts.fallbacks,
        rendered=prompts.rendered, short=prompts.short, index_bytes=cache.index.size, index_blocks=len(cache.index),
        evicted=cache.index.evicted, lapsed=cache.book.lapsed,
    )  # fmt: skip


def _target(target: Target, counters: FeedCounters) -> TargetNumbers:
    return TargetNumbers(
        key=target.key, worker=target.worker.id, picks=target.picks, active=len(target.active),
        blocks=len(target.slot), received=counters.events,
        events={
            "ignored": counters.ignored, "refused": counters.refused, "malformed": counters.malformed,
            "orphan": counters.orphans, "unknown": counters.unknown, "duplicate": counters.duplicates,
        },
        happenings={
            "gap": counters.gaps, "restart": counters.restarts, "replay": counters.replays,
            "replay_failed": counters.replays_failed, "block_size": counters.sizes,
            "unusable": counters.unusable, "fault": counters.faults,
        },
    )  # fmt: skip
