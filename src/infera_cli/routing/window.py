"""How often something happened of late."""

from __future__ import annotations

from collections import deque
from typing import Final

SLICE: Final = 0.1
"""Seconds whose samples are kept, and leave, together: a busy window holds thousands of slices, not millions."""


class _Slice:
    __slots__ = ("at", "hits", "samples")

    def __init__(self, at: float) -> None:
        self.at = at
        self.hits = self.samples = 0


class Window:
    """Hits and misses of the last `seconds`; times never go back."""

    __slots__ = ("_count", "_hits", "_last", "_slices", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._slices: deque[_Slice] = deque()
        self._last: _Slice | None = None
        self._count = self._hits = 0

    @property
    def ever_hit(self) -> bool:
        """Whether there may be a hit in the window; False is certain, and costs nothing to know."""
        return self._hits > 0

    def note(self, hit: bool, now: float) -> None:
        """One sample."""
        last = self._last
        if last is None or now - last.at >= SLICE:
            self._prune(now)
            last = self._last = _Slice(now)
            self._slices.append(last)
        last.samples += 1
        self._count += 1
        if hit:
            last.hits += 1
            self._hits += 1

    def count(self, now: float) -> int:
        """Samples in the window."""
        self._prune(now)
        return self._count

    def hits(self, now: float) -> int:
        """Hits among them."""
        self._prune(now)
        return self._hits

    def rate(self, now: float) -> float | None:
        """Hits ÷ samples; None where there are none."""
        self._prune(now)
        return self._hits / self._count if self._count else None

    def _prune(self, now: float) -> None:
        slices, limit = self._slices, now - self.seconds
        while slices and slices[0].at <= limit:
            gone = slices.popleft()
            self._hits -= gone.hits
            self._count -= gone.samples
