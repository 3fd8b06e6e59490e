"""Two results side by side, with confidence.

A change is called one only when its 95 % interval leaves out zero. Intervals come from a seeded bootstrap:

* the mean of a run is redrawn from its batch means, so requests that suffered together count together;
* a quantile is redrawn without resampling: the k-th of n draws lies at a Beta(k, n + 1 - k) place of the
  measured curve, n being lowered where batches vary more than independent requests would;
* with three or more repetitions these are redrawn too, so the spread between runs is in the interval.

Rates have no spread within a run and get an interval from repetitions only. Shares of failed requests are compared by
their difference, since one of them is often 0: Newcombe's interval, from those of the two shares.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from infera_cli.workload.distribution import Distribution
from infera_cli.workload.figures import Figures
from infera_cli.workload.search import wilson

DRAWS = 1000
LATENCIES = ("ttft", "tpot", "e2el")
STATISTICS = (("mean", None), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
RATES = ("overall_requests", "overall_output_tokens", "steady_output_tokens", "goodput")
REPEATS_NEEDED = 3

Draw = Callable[[Random], float]


class Row(msgspec.Struct, frozen=True):
    """One figure of A and B; `change` and its interval are shares of A, where `statistic` is "share" B - A. `verdict`
    is about B. `counts` are (A, of so many, B, of so many) behind a share."""

    metric: str
    statistic: str
    a: float
    b: float
    change: float | None
    low: float | None
    high: float | None
    verdict: str
    counts: tuple[int, int, int, int] | None = None


def compare(a: Sequence[Figures], b: Sequence[Figures], dice: Random) -> list[Row]:
    """Rows for all figures that both have; `a` and `b` are the repetitions of one run each."""
    return [*_latencies(a, b, dice), *_rates(a, b, dice), *_failures(a, b)]


def _latencies(a: Sequence[Figures], b: Sequence[Figures], dice: Random) -> list[Row]:
    rows = []
    for metric in LATENCIES:
        if not all(metric in run.latency for run in (*a, *b)):
            continue
        for name, share in STATISTICS:
            first, second = _value(a, metric, name), _value(b, metric, name)
            draws = (_redraw(a, metric, share), _redraw(b, metric, share))
            rows.append(_row(metric, name, (first, second), draws, dice, lower_is_better=True))
    return rows


def _rates(a: Sequence[Figures], b: Sequence[Figures], dice: Random) -> list[Row]:
    rows = []
    for name in RATES:
        first = [found for run in a if (found := getattr(run.rates, name)) is not None]
        second = [found for run in b if (found := getattr(run.rates, name)) is not None]
        if not first or not second:
            continue
        repeated = min(len(first), len(second)) >= REPEATS_NEEDED
        draws = (_resample(first), _resample(second)) if repeated else None
        means = (statistics.fmean(first), statistics.fmean(second))
        rows.append(_row(name, "rate", means, draws, dice, lower_is_better=False))
    return rows


def _failures(a: Sequence[Figures], b: Sequence[Figures]) -> list[Row]:
    (bad_a, all_a), (bad_b, all_b) = failed(a), failed(b)
    if not all_a or not all_b:
        return []
    first, second = bad_a / all_a, bad_b / all_b
    low_a, high_a = wilson(bad_a, all_a)
    low_b, high_b = wilson(bad_b, all_b)
    change = second - first
    low = change - math.hypot(second - low_b, high_a - first)
    high = change + math.hypot(high_b - second, first - low_a)
    verdict = "worse" if low > 0 else "better" if high < 0 else "no clear difference"
    return [Row("failed", "share", first, second, change, low, high, verdict, (bad_a, all_a, bad_b, all_b))]


def failed(runs: Sequence[Figures]) -> tuple[int, int]:
    """How many requests failed, and of how many; those that the end of a run cut off did neither."""
    bad = sum(run.counts.failed for run in runs)
    return bad, bad + sum(run.counts.ok for run in runs)


def _row(
    metric: str, name: str, values: tuple[float, float], draws: tuple[Draw, Draw] | None, dice: Random, *,
    lower_is_better: bool,
) -> Row:
    first, second = values
    change = second / first - 1 if first else None
    if draws is None or change is None:
        return Row(metric, name, first, second, change, None, None, "repeat for an interval")
    low, high = interval(draws[0], draws[1], dice)
    told = "better" if (high < 0) == lower_is_better else "worse"
    verdict = "no clear difference" if low <= 0 <= high else told
    return Row(metric, name, first, second, change, low, high, verdict)


def interval(a: Draw, b: Draw, dice: Random, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of b/a - 1."""
    changes = []
    for _ in range(DRAWS):
        base = a(dice)
        changes.append(b(dice) / base - 1 if base else 0.0)
    changes.sort()
    outside = int(DRAWS * (1 - confidence) / 2)
    return changes[outside], changes[-1 - outside]


def _value(runs: Sequence[Figures], metric: str, name: str) -> float:
    return statistics.fmean(getattr(run.latency[metric], name) for run in runs)


def _redraw(runs: Sequence[Figures], metric: str, share: float | None) -> Draw:
    """One statistic of the repetitions as it could as well have come out."""
    singles = [
        _resample(run.batches.get(metric) or (run.latency[metric].mean,)) if share is None
        else _quantile(run.latency[metric], share, run.batches.get(metric, ()))
        for run in runs
    ]

    def draw(dice: Random) -> float:
        chosen = dice.choices(singles, k=len(singles)) if len(singles) >= REPEATS_NEEDED else singles
        return statistics.fmean(single(dice) for single in chosen)

    return draw


def _resample(values: Sequence[float]) -> Draw:
    return lambda dice: sum(dice.choices(values, k=len(values))) / len(values)


def _quantile(of: Distribution, share: float, batches: Sequence[float]) -> Draw:
    n = max(1.0, of.n / _togetherness(of, batches))
    below = 1 + share * (n - 1)
    return lambda dice: of.quantile(dice.betavariate(below, n + 1 - below))


def _togetherness(of: Distribution, batches: Sequence[float]) -> float:
    """How many times more the batch means vary than those of independent requests would; at least 1."""
    if len(batches) < 2 or of.std == 0:
        return 1.0
    independent = of.std**2 * len(batches) / of.n
    return max(1.0, statistics.variance(batches) / independent) if independent else 1.0


class Spread(msgspec.Struct, frozen=True):
    """A figure over repetitions: mean, and the half-width of its 95 % interval (Student's t)."""

    mean: float
    half_width: float | None


_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}


def spread(values: Sequence[float]) -> Spread:
    """Mean and interval of one figure's repetitions; no interval for a single one."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Spread(mean, None)
    return Spread(mean, _T.get(len(values), 2.0) * statistics.stdev(values) / len(values) ** 0.5)
