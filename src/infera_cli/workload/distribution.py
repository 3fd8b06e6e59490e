"""Exact figures of many values: mean, spread, percentiles by linear interpolation ("type 7").

Two kinds of pool: plain values, and whole microseconds counted per value. The second stays small over any
number of gaps between tokens, merges by addition, and is still exact to the microsecond. Nothing is put in
buckets, so p50 ≤ p90 ≤ p99 ≤ max always (R169; bench-and-cli §0.3, §B4).
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

import msgspec

PERCENTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
GRID = 400  # steps of the stored quantile curve


class Distribution(msgspec.Struct, frozen=True):
    """Figures of `n` values, in their unit. `curve` holds GRID + 1 evenly spaced quantiles."""

    n: int
    mean: float
    std: float
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float
    curve: tuple[float, ...] = ()

    def quantile(self, share: float) -> float:
        """Any other quantile, off the stored curve."""
        return between(self.curve, share)

    def scaled(self, factor: float) -> Distribution:
        """The same figures in another unit."""
        numbers = {
            name: getattr(self, name) * factor
            for name in ("mean", "std", "min", "p50", "p90", "p95", "p99", "p999", "max")
        }
        return Distribution(n=self.n, curve=tuple(value * factor for value in self.curve), **numbers)


def enough(n: int, share: float) -> bool:
    """Whether `n` values can carry the percentile `share`: ten lie beyond it (bench-and-cli §A12.8)."""
    return n * (1 - share) >= 10 - 1e-9


def between(ordered: Sequence[float], share: float) -> float:
    """The quantile of rising values, linear between ranks. Raises IndexError for none."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def with_failures(ordered: Sequence[float], failed: int, share: float) -> float | None:
    """Nearest-rank percentile in which every failed request took for ever, None (bench-and-cli §0.3, adj_*)."""
    total = len(ordered) + failed
    rank = max(1, math.ceil(share * total))
    return ordered[rank - 1] if rank <= len(ordered) else None


class Values:
    """A pool of plain values, in order of arrival."""

    def __init__(self) -> None:
        self.values = array("d")

    def add(self, value: float) -> None:
        """One more."""
        self.values.append(value)

    def __len__(self) -> int:
        return len(self.values)

    def figures(self) -> Distribution | None:
        """The distribution, None without values."""
        if not self.values:
            return None
        return figures(sorted(self.values))


def figures(ordered: Sequence[float]) -> Distribution:
    """Figures of rising values, at least one."""
    count = len(ordered)
    mean = math.fsum(ordered) / count
    variance = math.fsum((value - mean) ** 2 for value in ordered) / count
    p50, p90, p95, p99, p999 = (between(ordered, share) for share in PERCENTILES)
    curve = tuple(round(between(ordered, step / GRID), 7) for step in range(GRID + 1))
    return Distribution(
        n=count, mean=min(max(mean, ordered[0]), ordered[-1]), std=math.sqrt(variance), min=ordered[0],
        p50=p50, p90=p90, p95=p95, p99=p99, p999=p999, max=ordered[-1], curve=curve,
    )


class Micros:
    """A pool of durations in whole microseconds, counted; `figures` are in seconds."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def add(self, micros: int, times: int = 1) -> None:
        """`times` durations of `micros`."""
        self.counts[micros] += times

    def update(self, micros: Sequence[int]) -> None:
        """Many durations."""
        self.counts.update(micros)

    def figures(self) -> Distribution | None:
        """The distribution in seconds, None without values."""
        ordered = sorted(value for value, times in self.counts.items() if times > 0)
        if not ordered:
            return None
        ends = list(accumulate(self.counts[value] for value in ordered))
        total = ends[-1]

        def at(rank: int) -> int:
            return ordered[bisect_right(ends, rank)]

        def quantile(share: float) -> float:
            place = share * (total - 1)
            low = math.floor(place)
            below, above = at(low), at(min(low + 1, total - 1))
            return (below + (above - below) * (place - low)) / 1e6

        mean = sum(value * self.counts[value] for value in ordered) / total
        variance = sum((value - mean) ** 2 * self.counts[value] for value in ordered) / total
        p50, p90, p95, p99, p999 = (quantile(share) for share in PERCENTILES)
        return Distribution(
            n=total, mean=mean / 1e6, std=math.sqrt(variance) / 1e6, min=ordered[0] / 1e6,
            p50=p50, p90=p90, p95=p95, p99=p99, p999=p999, max=ordered[-1] / 1e6,
            curve=tuple(round(quantile(step / GRID), 7) for step in range(GRID + 1)),
        )
