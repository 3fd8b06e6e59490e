"""The most load that still meets the SLOs: double until it fails, then halve the gap.

Each probe is judged by a Wilson interval of its attainment: above the target is a pass, below a failure,
and a probe whose interval straddles it is repeated, evidence added up. So the answer is an interval:
[largest level that passed, smallest that failed] (bench-and-cli §A3 "goodput", §A15).

Callers are whole, rates are not: where 1 is too much, a search of rates goes on below it, half as much until it passes.
Levels at which a probe has the same requests are one level: between them nothing is searched.
A probe that the load generator spoiled shows of no level that it is kept, one of which no request could be judged shows
nothing. Both are repeated; at last the sound probes decide, and where there is none the level counts as failed.

With a target of 1 no interval is ever above it: a level passes when all requests of all its PATIENCE probes were good,
and fails with the first that was not.
"""

from __future__ import annotations

import math

import msgspec

from infera_cli.workload.arrivals import OpenLoop, planned

Z = 1.96
PATIENCE = 3        # probes of one level before the point estimate decides
CEILING = 4096
LEAST_RATE = 1 / 64     # requests a second: of less nothing is seen in a time that anybody waits
LEAST_REQUESTS = 4      # of a probe of some seconds; one or two tell rates apart by luck


def wilson(good: int, judged: int) -> tuple[float, float]:
    """The 95 % interval of a share; (0, 1) without observations. Where all or none were good it ends at 1 or 0."""
    if judged == 0:
        return 0.0, 1.0
    share = good / judged
    spread = Z * math.sqrt(share * (1 - share) / judged + Z**2 / (4 * judged**2))
    middle, scale = share + Z**2 / (2 * judged), 1 + Z**2 / judged
    low = max(0.0, (middle - spread) / scale) if good else 0.0
    return low, min(1.0, (middle + spread) / scale) if good < judged else 1.0


class Least(msgspec.Struct, frozen=True):
    """The lowest level worth a probe; `duration`: the seconds of a probe where the level is a rate."""

    level: float = 1
    duration: float | None = None

    def same(self, one: float, other: float) -> bool:
        """Whether probes of both levels are the same requests."""
        return self.duration is not None and self._requests(one) == self._requests(other)

    def _requests(self, rate: float) -> int:
        return planned(OpenLoop(rate, duration=self.duration))


def least_level(kind: str, duration: float | None) -> Least:
    """One caller, or a rate at which a probe of `duration` seconds has some requests, as people write it."""
    if kind != "rate":
        return Least()
    if not duration:
        return Least(LEAST_RATE)
    return Least(max(LEAST_RATE, math.ceil(1000 * LEAST_REQUESTS / duration) / 1000), duration)


class Evidence(msgspec.Struct):
    """What is known of one level; `empty` probes had no request that could be judged."""

    good: int = 0
    judged: int = 0
    probes: int = 0
    empty: int = 0


class Search:
    """Ask `next_level`, run it, `tell` what came out, until `next_level` is None; levels go down to `least`."""

    def __init__(
        self, target: float, *, start: int = 1, precision: float = 0.1, ceiling: int = CEILING,
        least: Least | None = None,
    ) -> None:
        self.target, self.precision, self.ceiling, self.least = target, precision, ceiling, least or Least()
        self.evidence: dict[float, Evidence] = {}
        self.low: float = 0
        self.high: float | None = None
        self._level: float | None = min(max(start, math.ceil(self.least.level)), ceiling)

    @property
    def next_level(self) -> float | None:
        """The level to run now, a whole number from 1 on; None when found."""
        return self._level

    def tell(self, good: int, judged: int, *, sound: bool = True) -> str:
        """The result of the current level; returns pass, fail or again. Not `sound`: the run was INVALID."""
        level = self._level
        if level is None:
            raise ValueError("the search is over")
        known = self.evidence.setdefault(level, Evidence())
        known.probes += 1
        known.empty += not judged
        if sound or self._failed(good, judged):
            known.good, known.judged = known.good + good, known.judged + judged
            verdict = self._verdict(known)
        else:
            verdict = "again" if known.probes < PATIENCE else self._verdict(known)
        if verdict == "pass":
            self.low = max(self.low, level)
        elif verdict == "fail":
            self.high = level if self.high is None else min(self.high, level)
        if verdict != "again":
            self._level = self._choose()
        return verdict

    def _verdict(self, known: Evidence) -> str:
        if self._failed(known.good, known.judged):
            return "fail"
        if wilson(known.good, known.judged)[0] >= self.target:
            return "pass"
        if known.probes < PATIENCE:
            return "again"
        return "pass" if known.judged and known.good / known.judged >= self.target else "fail"

    def _failed(self, good: int, judged: int) -> bool:
        return wilson(good, judged)[1] < self.target

    def _choose(self) -> float | None:
        if self.high is None:
            return min(self.low * 2, self.ceiling) if self.low < self.ceiling else None
        if self.high - self.low <= self._close(self.high):
            return None
        level = self._between(self.high)
        ends = [end for end in (self.low, self.high) if end]
        tried = level < self.least.level or any(level == end or self.least.same(level, end) for end in ends)
        return None if tried else level

    def _close(self, high: float) -> float:
        """How near the ends of the interval may come."""
        if high <= 1 or not self.low:
            return self.low * self.precision
        return max(1, round(self.low * self.precision))

    def _between(self, high: float) -> float:
        """The middle, a whole number above 1; half as much while nothing has passed, down to the least."""
        if high > 1:
            return (self.low + high) // 2
        return max((self.low + high) / 2, self.least.level)
