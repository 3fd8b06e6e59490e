"""Over what time a rate is taken: the whole run, the steady part, the busiest second.

Names that cannot be confused (R160): *overall* is from the first send to the last end, ramp and tail
included; *between completions* is (n - 1) / (last end - first end); *steady* is the longest span in which
at least 90 % of the peak number of requests were open.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator

import msgspec

BIN = 0.01          # seconds of one bin of the token timeline
STEADY_SHARE = 0.9
ENOUGH_STEADY = 0.2     # a steady span shorter than this share of the run says nothing
DIP = 0.05          # seconds: a shorter fall below, as between two requests of one caller, ends no steady span


class Concurrency(msgspec.Struct, frozen=True):
    """How many requests were open, from an exact sweep over starts and ends."""

    mean: float
    peak: int
    steady_start: float
    steady_end: float


def sweep(starts: array[float], ends: array[float]) -> Iterator[tuple[float, int]]:
    """(instant, number open from then on), in order; an end comes before a start of the same instant."""
    rising, falling = sorted(starts), sorted(ends)
    opened = closed = 0
    while closed < len(falling):
        if opened < len(rising) and rising[opened] < falling[closed]:
            at = rising[opened]
            opened += 1
        else:
            at = falling[closed]
            closed += 1
        yield at, opened - closed


def concurrency(starts: array[float], ends: array[float]) -> Concurrency:
    """Mean, peak and steady span; all 0 without requests."""
    if not starts:
        return Concurrency(0.0, 0, 0.0, 0.0)
    window = max(ends) - min(starts)
    busy = math.fsum(ends) - math.fsum(starts)
    peak = max(open_now for _at, open_now in sweep(starts, ends))
    begin, end = _steady(starts, ends, STEADY_SHARE * peak)
    return Concurrency(busy / window if window > 0 else float(peak), peak, begin, end)


def _steady(starts: array[float], ends: array[float], level: float) -> tuple[float, float]:
    best = (0.0, 0.0)
    since = fell = None
    for at, open_now in sweep(starts, ends):
        if fell is not None and since is not None and at - fell > DIP:
            best = max(best, (since, fell), key=_length)
            since = fell = None
        if open_now >= level:
            since, fell = at if since is None else since, None
        elif since is not None and fell is None:
            fell = at
    return best if since is None or fell is None else max(best, (since, fell), key=_length)


def _length(span: tuple[float, float]) -> float:
    return span[1] - span[0]


def completion_rate(ends: array[float]) -> float | None:
    """(n - 1) / (last end - first end); None for fewer than two or no time between (R160)."""
    if len(ends) < 2 or max(ends) == min(ends):
        return None
    return (len(ends) - 1) / (max(ends) - min(ends))


class Moments:
    """Amounts (answers, tokens of prompts) at their instants: few enough to keep, and too large to be put in bins."""

    def __init__(self) -> None:
        self._at, self._amounts = array("d"), array("q")

    def add(self, at: float, amount: int) -> None:
        """`amount` of them came at `at`."""
        self._at.append(at)
        self._amounts.append(amount)

    def within(self, start: float, end: float) -> float:
        """How many came from one instant to another, both included."""
        return sum(amount for at, amount in zip(self._at, self._amounts, strict=True) if start <= at <= end)


class Timeline:
    """Amounts of tokens over time, in bins of BIN seconds."""

    def __init__(self) -> None:
        self.bins: Counter[int] = Counter()

    def add(self, at: float, tokens: float) -> None:
        """`tokens` of them came at `at`."""
        self.bins[int(at / BIN)] += tokens  # type: ignore[assignment]  # a Counter holds shares as well

    def within(self, start: float, end: float) -> float:
        """How many came between two instants, to the width of a bin."""
        low, high = start / BIN, end / BIN
        return math.fsum(tokens for at, tokens in self.bins.items() if low <= at < high)

    def peak(self, window: float, mean: float) -> float:
        """The most tokens/s over a second, or over the whole when shorter.

        Never below `mean` (R155): one of all seconds is at or above it, so less would be an artefact of the bins.
        """
        if not self.bins:
            return mean
        width = max(1, round(min(window, 1.0) / BIN))
        ordered = sorted(self.bins)
        best = inside = 0.0
        first = 0
        for at in ordered:
            inside += self.bins[at]
            while ordered[first] <= at - width:
                inside -= self.bins[ordered[first]]
                first += 1
            best = max(best, inside)
        return max(best / (width * BIN), mean)
