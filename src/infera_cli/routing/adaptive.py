"""Hit rates over a rolling five minutes, and the switch that follows them (replica-router §2.6)."""

from __future__ import annotations

from infera_cli.routing.window import Window

WINDOW = 300.0
ON_ABOVE = 0.40
OFF_BELOW = 0.30
FEWEST = 20
DWELL = 60.0


class Switch:
    """Prefix-aware while prefixes are often known, lru otherwise; starts as lru.

    On strictly above 40 % with at least 20 samples, off below 30 %, in between as it was; two changes are at
    least 60 s apart; an empty window is lru.
    """

    __slots__ = ("_changed", "_on", "window")

    def __init__(self) -> None:
        self.window = Window(WINDOW)
        self._on = False
        self._changed = -DWELL

    def note(self, hit: bool, now: float) -> None:
        """A request with prefixes: whether any candidate held one."""
        self.window.note(hit, now)

    def on(self, now: float) -> bool:
        """Whether prefixes count now."""
        wanted = self._wanted(now)
        if wanted is not self._on and now - self._changed >= DWELL:
            self._on, self._changed = wanted, now
        return self._on

    def _wanted(self, now: float) -> bool:
        rate = self.window.rate(now)
        if rate is None:
            return False
        if self._on:
            return rate >= OFF_BELOW
        return rate > ON_ABOVE and self.window.count(now) >= FEWEST
