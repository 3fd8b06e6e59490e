"""How many cases a fuzz test tries: a fixed number from a fixed seed, or in `make fuzz` new ones for a while.

INFERA_FUZZ_SECONDS says for how long each test goes on there (60 unless given).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from time import monotonic

import pytest

LENGTHS = [
    pytest.param(0.0, id="bounded"),
    pytest.param(float(os.environ.get("INFERA_FUZZ_SECONDS", "60")), id="long", marks=pytest.mark.fuzz),
]
"""Seconds a random test goes on beyond its fixed cases."""


def dice(cases: int, name: str, seconds: float) -> Iterator[random.Random]:
    """Yield a generator for each of `cases`, and with `seconds` fresh ones until they are over."""
    base = random.SystemRandom().randrange(1 << 32) if seconds else 0
    until, number = monotonic() + seconds, 0
    while number < cases or monotonic() < until:
        yield random.Random(f"{name}:{base}:{number}")
        number += 1


def cuts(rng: random.Random, size: int) -> list[int]:
    """Places to cut `size` bytes at: none, a few, or many."""
    many = rng.choice((0, 1, 2, 5, 20))
    return sorted(rng.randrange(size + 1) for _ in range(many))
