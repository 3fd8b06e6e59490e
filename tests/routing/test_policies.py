"""Each policy's own choice, and the table they stand in (design.md §4)."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from infera_cli.errors import UsageError
from infera_cli.routing.catalogue import POLICIES, policy
from tests.routing.worlds import World


class Loaded:
    """Dice that fall as told."""

    def __init__(self, *throws: float) -> None:
        self.throws = iter(throws)

    def random(self) -> float:
        return next(self.throws)


def test_round_robin_is_exact() -> None:
    """Thirty requests over three workers, whatever their load: ten each, in turn."""
    world = World([7, 0, 3], policy="round-robin")
    assert [world.visit() for _ in range(30)] == ["w0", "w1", "w2"] * 10


def test_least_loaded_takes_the_fewest_open_requests() -> None:
    """Only open requests count."""
    assert World([2, 1, 3], policy="least-loaded").visit() == "w1"


def test_random_reaches_everybody_equally() -> None:
    """A thousand throws over four workers, each within a quarter of its share."""
    world = World([9, 0, 0, 0], policy="random")
    served = Counter(world.visit() for _ in range(1000))
    assert all(190 <= served[f"w{i}"] <= 310 for i in range(4))


@pytest.mark.parametrize(
    ("loads", "throws", "served"),
    [
        ([5, 1, 0], (0.0, 0.0), "w1"),    # w0 and w1: the lighter
        ([1, 5, 0], (0.0, 0.0), "w0"),
        ([0, 9, 9], (0.4, 0.99), "w1"),   # w1 and w2 tie: the first thrown
        ([0, 9, 9], (0.99, 0.99), "w2"),  # w2 and w1 tie: the first thrown again
        ([4], (), "w0"),                  # one worker needs no dice
    ],
)  # fmt: skip
def test_power_of_two_takes_the_lighter_of_two(
    loads: list[int], throws: tuple[float, ...], served: str
) -> None:
    """Two different workers are thrown; of equals, the one thrown first."""
    world = World(loads, policy="power-of-two")
    world.dice = Loaded(*throws)  # type: ignore[assignment]
    assert world.decide().worker.id == served


def test_power_of_two_never_takes_the_most_loaded() -> None:
    """The worst of four always meets a better one."""
    world = World([1, 2, 3, 50], policy="power-of-two")
    assert "w3" not in {world.visit() for _ in range(300)}


def test_the_catalogue_is_keyed_by_name() -> None:
    """Every row is found under its own name, `session` first, and says in one sentence what it does."""
    assert list(POLICIES) == [
        "session", "round-robin", "least-loaded", "kv-aware", "prefix-aware", "cost", "adaptive", "random",
        "power-of-two",
    ]
    assert all(name == row.name and policy(name) is row for name, row in POLICIES.items())
    assert all(row.summary.endswith(".") and "\n" not in row.summary for row in POLICIES.values())
    assert [name for name, row in POLICIES.items() if row.pins] == ["session"]


def test_an_unknown_policy_lists_the_known_ones() -> None:
    """The error names the choices."""
    with pytest.raises(UsageError, match=r"'bogus'.*session, round-robin"):
        policy("bogus")


def test_the_catalogue_is_cheap_to_import() -> None:
    """Reading names for `--help` loads none of the libraries that routing itself needs."""
    heavy = "{'msgspec', 'asyncio', 'random'}"
    code = f"import sys, infera_cli.routing.catalogue; print({heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
