"""Two transition tables for one worker: is it ready, and does its breaker let work through.

Time is an argument, in seconds. An illegal move raises IllegalMove and changes nothing
(replica-router §1.7, infera-wire §4.9; style.md 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Literal

from infera_cli.errors import IllegalMove


class Score(Enum):
    """What an attempt says about its worker (infera-wire §4.9; replica-router §1.7; rulings 2)."""

    SUCCESS = "success"          # first body byte of a 2xx/3xx answer
    FAULT = "fault"              # 5xx, or broken before any answer
    NEUTRAL = "neutral"          # 4xx, 429, 501, time-outs, client gone: frees a trial, counts nothing
    UNREACHABLE = "unreachable"  # could not connect: a fault, and out of rotation at once


# ── readiness ────────────────────────────────────────────────────────────────────────────────────────
Ready = Literal["loading", "ready", "struck", "out"]
"""loading: launched, never ready yet; struck: ready with one failed probe; out: not ready."""

Sign = Literal["probe_ok", "probe_failed", "unreachable", "alive"]
"""alive: bytes of an answer arrived. They take a strike away (rulings 12) but bring nobody back: old streams
may still move on a worker that takes no new connection."""

READINESS: dict[tuple[str, str], Ready] = {
    ("loading", "probe_ok"): "ready",
    ("loading", "probe_failed"): "loading",
    ("loading", "unreachable"): "loading",
    ("loading", "alive"): "loading",
    ("ready", "probe_ok"): "ready",
    ("ready", "probe_failed"): "struck",
    ("ready", "unreachable"): "out",
    ("ready", "alive"): "ready",
    ("struck", "probe_ok"): "ready",
    ("struck", "probe_failed"): "out",
    ("struck", "unreachable"): "out",
    ("struck", "alive"): "ready",
    ("out", "probe_ok"): "ready",
    ("out", "probe_failed"): "out",
    ("out", "unreachable"): "out",
    ("out", "alive"): "out",
}


class Readiness:
    """Two strikes out, one success in (replica-router §1.7). Draining is another matter, and not here.

    `failures` counts failed probes in a row, for people to read; the table does the deciding.
    """

    __slots__ = ("failures", "state")

    def __init__(self, *, ready: bool) -> None:
        self.failures = 0
        self.state: Ready = "ready" if ready else "loading"

    @property
    def ready(self) -> bool:
        """Whether it may serve, as far as probes and connections tell."""
        return self.state in ("ready", "struck")

    def move(self, sign: Sign) -> bool:
        """Take in one sign; True when `ready` changed by it."""
        after = READINESS.get((self.state, sign))
        if after is None:
            raise IllegalMove(f"A worker that is {self.state} cannot take the sign {sign}.")
        before, self.state = self.ready, after
        if sign == "probe_failed":
            self.failures += 1
        elif after == "ready":
            self.failures = 0
        return self.ready is not before


# ── breaker ──────────────────────────────────────────────────────────────────────────────────────────
BreakerState = Literal["closed", "open", "half_open"]
Push = Literal["success", "fault", "trip", "neutral", "elapse", "claim"]
"""trip: the fault that reaches the threshold; elapse: the cooldown is over; claim: the trial is given out."""

BREAKER: dict[tuple[str, str], BreakerState] = {
    ("closed", "success"): "closed",
    ("closed", "fault"): "closed",
    ("closed", "neutral"): "closed",
    ("closed", "trip"): "open",
    ("open", "success"): "closed",  # of a request sent before the trip, or while every breaker was open
    ("open", "fault"): "open",
    ("open", "neutral"): "open",
    ("open", "elapse"): "half_open",
    ("half_open", "success"): "closed",
    ("half_open", "fault"): "open",
    ("half_open", "neutral"): "half_open",
    ("half_open", "claim"): "half_open",
}


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """The numbers of a breaker: faults in a row until it opens (0: never), then seconds: the first
    cooldown, the longest one after doublings, and how long a trial may stay unanswered."""

    threshold: int = 3
    cooldown: float = 5.0
    cooldown_max: float = 60.0
    trial: float = 60.0


class Breaker:
    """Keeps a failing worker out for a while, then lets one request at a time try it (infera-wire §4.9).

    `trips` counts entries into open. `changes_at` is when time alone changes `allows`, else infinity.
    """

    __slots__ = ("_cooldown", "_faults", "_rules", "changes_at", "state", "trips")

    def __init__(self, rules: BreakerRules) -> None:
        self._rules = rules
        self._cooldown = rules.cooldown
        self._faults = 0
        self.state: BreakerState = "closed"
        self.trips = 0
        self.changes_at = inf

    @property
    def stand(self) -> tuple[BreakerState, float]:
        """All that `allows` depends on, to see whether something changed."""
        return self.state, self.changes_at

    @property
    def calm(self) -> bool:
        """Closed and without a fault: a success would change nothing."""
        return self.state == "closed" and not self._faults

    @property
    def trying(self) -> bool:
        """Half open, and its one trial is under way."""
        return self.state == "half_open" and self.changes_at != inf

    def allows(self, now: float) -> bool:
        """Whether a request may go through at `now`; changes nothing."""
        if self.state == "closed" or now >= self.changes_at:
            return True
        return self.state == "half_open" and not self.trying

    def look(self, now: float) -> None:
        """Time went on: half open once the cooldown is over; a trial never answered is given up."""
        if now < self.changes_at:
            return
        if self.state == "open":
            self.elapse(now)
        else:
            self.changes_at = inf

    def elapse(self, now: float) -> None:
        """The cooldown is over. Raises IllegalMove when not open, or before its time."""
        self._check("elapse", guard=now >= self.changes_at)
        self._go("elapse")
        self.changes_at = inf

    def claim(self, now: float) -> None:
        """Give out the one trial. Raises IllegalMove when not half open, or while another trial is out."""
        self._check("claim", guard=self.allows(now))
        self._go("claim")
        self.changes_at = now + self._rules.trial

    def record(self, score: Score, now: float) -> None:
        """How an attempt went: success resets all, a fault counts, neutral frees the trial and no more."""
        if score is Score.SUCCESS:
            self._go("success")
            self._faults, self._cooldown, self.changes_at = 0, self._rules.cooldown, inf
        elif score is Score.NEUTRAL:
            self._go("neutral")
            if self.state == "half_open":
                self.changes_at = inf
        else:
            self._fault(now)

    def _fault(self, now: float) -> None:
        before = self.state
        if before == "closed":
            self._faults += 1
        trips = before == "closed" and 0 < self._rules.threshold <= self._faults
        self._go("trip" if trips else "fault")
        if self.state == "open" and before != "open":
            if before == "half_open":
                self._cooldown = min(2 * self._cooldown, self._rules.cooldown_max)
            self.trips += 1
            self.changes_at = now + self._cooldown

    def _check(self, push: Push, *, guard: bool) -> None:
        if (self.state, push) not in BREAKER or not guard:
            raise IllegalMove(f"A breaker that is {self.state} cannot {push} now.")

    def _go(self, push: Push) -> None:
        self.state = BREAKER[self.state, push]
