"""The most load that still meets the SLOs: double until it fails, then halve the gap.

Each probe is judged by a Wilson interval of its attainment: above the target is a pass, below a failure,
and a probe whose interval straddles it is repeated, evidence added up. So the answer is an interval:
[largest level that passed, smallest that failed] (bench-and-cli §A3 "goodput", §A15).
"""

from __future__ import annotations

import math

import msgspec

Z = 1.96
PATIENCE = 3        # probes of one level before the point estimate decides
CEILING = 4096


def wilson(good: int, judged: int) -> tuple[float, float]:
    """The 95 % interval of a share; (0, 1) without observations."""
    if judged == 0:
        return 0.0, 1.0
    share = good / judged
    spread = Z * math.sqrt(share * (1 - share) / judged + Z**2 / (4 * judged**2))
    middle, scale = share + Z**2 / (2 * judged), 1 + Z**2 / judged
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


class Evidence(msgspec.Struct):
    """What is known of one level."""

    good: int = 0
    judged: int = 0
    probes: int = 0


class Search:
    """Ask `next_level`, run it, `tell` what came out, until `next_level` is None."""

    def __init__(
        self, target: float, *, start: int = 1, precision: float = 0.1, ceiling: int = CEILING
    ) -> None:
        self.target, self.precision, self.ceiling = target, precision, ceiling
        self.evidence: dict[int, Evidence] = {}
        self.low = 0
        self.high: int | None = None
        self._level: int | None = start

    @property
    def next_level(self) -> int | None:
        """The level to run now; None when found."""
        return self._level

    def tell(self, good: int, judged: int) -> str:
        """The result of the current level; returns pass, fail or again."""
        level = self._level
        if level is None:
            raise ValueError("the search is over")
        known = self.evidence.setdefault(level, Evidence())
        known.good, known.judged, known.probes = known.good + good, known.judged + judged, known.probes + 1
        verdict = self._verdict(known)
        if verdict == "pass":
            self.low = max(self.low, level)
        elif verdict == "fail":
            self.high = level if self.high is None else min(self.high, level)
        if verdict != "again":
            self._level = self._choose()
        return verdict

    def _verdict(self, known: Evidence) -> str:
        low, high = wilson(known.good, known.judged)
        if low >= self.target:
            return "pass"
        if high < self.target or known.judged == 0:
            return "fail"
        if known.probes < PATIENCE:
            return "again"
        return "pass" if known.good / known.judged >= self.target else "fail"

    def _choose(self) -> int | None:
        if self.high is None:
            return min(self.low * 2, self.ceiling) if self.low < self.ceiling else None
        if self.high - self.low <= max(1, round(self.low * self.precision)):
            return None
        return (self.low + self.high) // 2 or None
