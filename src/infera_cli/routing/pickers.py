"""Ways to pick one place of a pool; whoever ties, list order never decides (design.md §4; R077).

Each returns an index into `pool.workers`. `turn` is the rotation counter, below `pool.size`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # config reads the catalogue for its names, and should not pay for msgspec
    from infera_cli.routing.types import Pool


class Dice(Protocol):
    """What `random.Random` offers and routing uses."""

    def random(self) -> float:
        """A number in [0, 1)."""


def in_turn(pool: Pool, turn: int) -> int:
    """The first worker in rotation: smallest (place − turn) mod size."""
    at = bisect_left(pool.places, turn)
    return at if at < len(pool.places) else 0


def least_in_turn(pool: Pool, outstanding: Sequence[int], turn: int) -> int:
    """The first in rotation among those with the fewest open requests (replica-router §1.10)."""
    start = in_turn(pool, turn)
    if not outstanding[pool.workers[start].number]:
        return start  # nothing is below zero, so nobody else need be asked
    loads = pool.loads(outstanding)
    least = min(loads)
    try:
        return loads.index(least, start)
    except ValueError:
        return loads.index(least)


def thrown(count: int, dice: Dice) -> int:
    """Any of `count`, equally likely."""
    return int(dice.random() * count)
