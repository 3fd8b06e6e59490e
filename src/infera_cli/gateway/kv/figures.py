"""Sizes of picks, for the histograms of infera-wire §8."""

from __future__ import annotations

from bisect import bisect_left

from infera_cli.routing.kv import Choice

BOUNDS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


class Sizes:
    """A histogram of block counts over BOUNDS; `counts` has one more place, for what is above all."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0

    def add(self, count: int) -> None:
        """One pick."""
        self.counts[bisect_left(BOUNDS, count)] += 1
        self.total += count


class Picks:
    """How many blocks picks asked for, and how many of them were there, by role."""

    def __init__(self) -> None:
        self.blocks: dict[str, Sizes] = {}
        self.hits: dict[str, Sizes] = {}

    def add(self, choice: Choice) -> None:
        """One pick."""
        role = choice.target.worker.spec.role
        self.blocks.setdefault(role, Sizes()).add(choice.blocks)
        self.hits.setdefault(role, Sizes()).add(choice.hits)
