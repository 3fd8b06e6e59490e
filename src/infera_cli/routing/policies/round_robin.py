"""`round-robin`: the next in rotation; the fleet keeps a counter per model (infera-wire §4.4; S56, R076)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from infera_cli.routing.pickers import Dice, in_turn

if TYPE_CHECKING:
    from infera_cli.routing.types import Pool


def choose(pool: Pool, _outstanding: Sequence[int], turn: int, _dice: Dice) -> int:
    """The first in rotation, whatever it has to do."""
    return in_turn(pool, turn)
