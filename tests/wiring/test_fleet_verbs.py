"""What the fleet commands make of the slots there are."""

from __future__ import annotations

from typing import Any

import pytest

from infera_cli.errors import UsageError
from infera_cli.wiring.fleet_verbs import plan_up


def row(slot: str, state: str) -> dict[str, Any]:
    return {"slot": slot, "state": state}


ROWS = [row("a", "ready"), row("b", "unknown"), row("c", "free")]


@pytest.mark.parametrize(
    ("count", "launched"), [(None, ["c", "b"]), (0, []), (1, []), (2, ["c"]), (3, ["c", "b"])]
)
def test_what_is_missing_is_launched_on_free_slots_first(count: int | None, launched: list[str]) -> None:
    """What runs is kept, and a slot of which nothing is known comes last."""
    assert plan_up(ROWS, count) == (["a"], launched)


def test_more_replicas_than_slots_are_refused() -> None:
    """Nobody is left believing that what cannot be was done."""
    with pytest.raises(UsageError, match="4 replicas are more than the 3 slots"):
        plan_up(ROWS, 4)
