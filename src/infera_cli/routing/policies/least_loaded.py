"""`least-loaded`: the fewest requests open through this router; ties go round (replica-router §1.10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from infera_cli.routing.pickers import Dice, least_in_turn

if TYPE_CHECKING:
    from infera_cli.routing.types import Pool


def choose(pool: Pool, outstanding: Sequence[int], turn: int, _dice: Dice) -> int:
    """The least loaded; among equals the first in rotation."""
    return least_in_turn(pool, outstanding, turn)
