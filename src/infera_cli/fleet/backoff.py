"""How long to wait before the next try: doubling, bounded, and never in step with anybody else (R124)."""

from __future__ import annotations

import random


class Backoff:
    """Delays in seconds from `first`, doubling up to `most`, each cut at random by up to half.

    `healthy` is how long something must have gone well before the delays begin anew: a connection that is
    accepted and dropped at once must not be retried without pause.
    """

    def __init__(
        self, first: float, most: float, *, healthy: float = 5.0, dice: random.Random | None = None
    ) -> None:
        self._first = first
        self._most = most
        self._healthy = healthy
        self._dice = dice if dice is not None else random.Random()  # noqa: S311 - spreads load, hides nothing
        self._tries = 0

    def next(self) -> float:
        """The next delay."""
        whole = min(self._most, self._first * 2.0 ** min(self._tries, 32))
        self._tries += 1
        return whole * self._dice.uniform(0.5, 1.0)

    def went_well(self, seconds: float) -> None:
        """It worked for so long; begin anew if that was long enough."""
        if seconds >= self._healthy:
            self._tries = 0
