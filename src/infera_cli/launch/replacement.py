"""When a dead replica is replaced, how often, and when to give up (PURE; replica-router §1.7 rules 1–9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

TRIES = 5
LONGEST_PAUSE = 600.0
PER_HOUR = 3
HOUR = 3600.0
_LOOK_MOST = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Times in seconds; see the settings of the same names. `command` bounds one launch or stop command."""

    launch_timeout: float = 600.0
    drain_timeout: float = 300.0
    health_interval: float = 5.0
    replace_after: float = 30.0
    replace_dead: bool = True
    command: float = 120.0
    grace: float = 30.0
    kill_wait: float = 10.0

    @property
    def dwell(self) -> float:
        """How long a replica may be down: never under two health intervals, which could not see a recovery."""
        return max(self.replace_after, 2 * self.health_interval)

    @property
    def step(self) -> float:
        """How often a launch is looked at; a short launch time-out is honoured, not rounded up (A14)."""
        return max(0.05, min(1.0, self.health_interval, self.launch_timeout / 4))

    def look_every(self, loading: float) -> float:
        """How long to wait between two looks whether a process that loads is still there: it ends early, or hardly."""
        return min(_LOOK_MOST, loading / 4)

    def is_due(self, down_since: float | None, now: float) -> bool:
        """Whether a replica that is down since then is replaced now."""
        return self.replace_dead and down_since is not None and now - down_since >= self.dwell

    def pauses(self) -> Iterator[float]:
        """How long to wait after the first, second … failed launch command; ends where to give up."""
        for number in range(1, TRIES):
            yield min(self.dwell * 2**number, LONGEST_PAUSE)


def may_replace(replaced: Sequence[float], now: float) -> bool:
    """Whether a slot that was replaced at those times may be once more."""
    return sum(now - when < HOUR for when in replaced) < PER_HOUR
