"""What a feed counts, per rank; whoever shows numbers reads them (R080, R085, R086)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class FeedCounters:
    """Running totals. `batches` and `events` arrived; of events, `ignored` concern other tiers or are unknown,
    `refused` do not add up, `malformed` could not be read, `orphans` waited for their parent; `unknown`
    removals named blocks that were not known. `sizes`: its blocks turned out to be of another size than it is
    registered with. `unusable`: an address could not be opened; `faults` of ours cost it its view."""

    batches: int = 0
    events: int = 0
    blocks: int = 0
    ignored: int = 0
    refused: int = 0
    malformed: int = 0
    orphans: int = 0
    unknown: int = 0
    gaps: int = 0
    duplicates: int = 0
    restarts: int = 0
    replays: int = 0
    replays_failed: int = 0
    sizes: int = 0
    unusable: int = 0
    faults: int = 0
