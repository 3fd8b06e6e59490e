"""How many cases a fuzz test tries: a fixed number from a fixed seed, or new ones for INFERA_FUZZ_SECONDS."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from time import monotonic


def dice(cases: int, name: str) -> Iterator[random.Random]:
    """Yield a generator for each case; its `.seed` text in a failure message is enough to repeat the case."""
    seconds = float(os.environ.get("INFERA_FUZZ_SECONDS", "0"))
    base = random.SystemRandom().randrange(1 << 32) if seconds else 0
    until, number = monotonic() + seconds, 0
    while number < cases or monotonic() < until:
        yield random.Random(f"{name}:{base}:{number}")
        number += 1


def cuts(rng: random.Random, size: int) -> list[int]:
    """Places to cut `size` bytes at: none, a few, or many."""
    many = rng.choice((0, 1, 2, 5, 20))
    return sorted(rng.randrange(size + 1) for _ in range(many))
