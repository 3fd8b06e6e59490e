"""The most load that still meets the SLOs: double until it fails, then halve the gap.

Each probe is judged by a Wilson interval of its attainment: above the target is a pass, below a failure,
and a probe whose interval straddles it is repeated, evidence added up. So the answer is an interval:
[largest level that passed, smallest that failed] (bench-and-cli §A3 "goodput", §A15).

Callers are whole, rates are not: where 1 is too much, a search of rates goes on below it, half as much until it passes.
A probe that the load generator spoiled shows of no level that it is kept; it is repeated, and at last counts as failed.
"""

from __future__ import annotations

import math

import msgspec

Z = 1.96
PATIENCE = 3        # probes of one level before the point estimate decides
CEILING = 4096
LEAST_RATE = 1 / 64     # requests a second: of less nothing is seen in a time that anybody waits


def wilson(good: int, judged: int) -> tuple[float, float]:
    """The 95 % interval of a share; (0, 1) without observations."""
    if judged == 0:
        return 0.0, 1.0
    share = good / judged
    spread = Z * math.sqrt(share * (1 - share) / judged + Z**2 / (4 * judged**2))
    middle, scale = share + Z**2 / (2 * judged), 1 + Z**2 / judged
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


def least_level(kind: str, duration: float | None) -> float:
    """The lowest level worth a probe: one caller, or a rate at which a probe of `duration` seconds has a request."""
    if kind != "rate":
        return 1
    return max(LEAST_RATE, 1 / duration if duration else 0.0)


class Evidence(msgspec.Struct):
    """What is known of one level."""

    good: int = 0
    judged: int = 0
    probes: int = 0


class Search:
    """Ask `next_level`, run it, `tell` what came out, until `next_level` is None; levels go down to `least`."""

    def __init__(
        self, target: float, *, start: int = 1, precision: float = 0.1, ceiling: int = CEILING, least: float = 1
    ) -> None:
        self.target, self.precision, self.ceiling, self.least = target, precision, ceiling, least
        self.evidence: dict[float, Evidence] = {}
        self.low: float = 0
        self.high: float | None = None
        self._level: float | None = start

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
        if sound or self._failed(good, judged):
            known.good, known.judged = known.good + good, known.judged + judged
            verdict = self._verdict(known)
        else:
            verdict = "again" if known.probes < PATIENCE else "fail"
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
        return "pass" if known.good / known.judged >= self.target else "fail"

    def _failed(self, good: int, judged: int) -> bool:
        return wilson(good, judged)[1] < self.target or judged == 0

    def _choose(self) -> float | None:
        if self.high is None:
            return min(self.low * 2, self.ceiling) if self.low < self.ceiling else None
        if self.high <= 1:
            return self._below_one(self.high)
        if self.high - self.low <= max(1, round(self.low * self.precision)):
            return None
        return (self.low + self.high) // 2 or None

    def _below_one(self, high: float) -> float | None:
        if not self.low:
            return high / 2 if high / 2 >= self.least else None
        return (self.low + high) / 2 if high - self.low > self.low * self.precision else None
