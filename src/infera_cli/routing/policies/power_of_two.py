"""`power-of-two`: two at random, the less loaded of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from infera_cli.routing.pickers import Dice, thrown

if TYPE_CHECKING:
    from infera_cli.routing.types import Pool


def choose(pool: Pool, outstanding: Sequence[int], _turn: int, dice: Dice) -> int:
    """Two different workers are thrown; of equals the one thrown first serves, so the dice break ties."""
    count = len(pool.workers)
    if count == 1:
        return 0
    first = thrown(count, dice)
    second = thrown(count - 1, dice)
    if second >= first:
        second += 1
    loads = outstanding[pool.workers[first].number], outstanding[pool.workers[second].number]
    return second if loads[1] < loads[0] else first
