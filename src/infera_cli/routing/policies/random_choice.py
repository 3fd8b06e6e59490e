"""`random`: anyone, equally likely."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from infera_cli.routing.pickers import Dice, thrown

if TYPE_CHECKING:
    from infera_cli.routing.types import Pool


def choose(pool: Pool, _outstanding: Sequence[int], _turn: int, dice: Dice) -> int:
    """One throw of the dice."""
    return thrown(len(pool.workers), dice)
