"""Sizes of picks, for the histograms of infera-wire §8."""

from __future__ import annotations

from collections import Counter

from infera_cli.routing.kv import Choice


class Picks:
    """How many blocks picks asked for, and how many were there: (role, blocks) → picks."""

    def __init__(self) -> None:
        self.blocks: Counter[tuple[str, int]] = Counter()
        self.hits: Counter[tuple[str, int]] = Counter()

    def add(self, choice: Choice) -> None:
        """One pick."""
        role = choice.target.worker.spec.role
        self.blocks[role, _bucket(choice.blocks)] += 1
        self.hits[role, _bucket(choice.hits)] += 1


def _bucket(count: int) -> int:
    """The least bucket that takes `count`: 0, 1, 2, 4 … 2048; more is 4096."""
    return 0 if count <= 0 else min(4096, 1 << (count - 1).bit_length())
