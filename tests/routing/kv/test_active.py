"""Distinct blocks of open prompts, against a plain count of every hash (infera-wire §4.4)."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from infera_cli.blocks import chain
from infera_cli.routing.kv.active import ActiveBlocks


def prompt(dice: random.Random) -> list[int]:
    """The hashes of a prompt that may share its beginning with others, be part of another, or be empty."""
    tokens = [dice.randrange(2) for _ in range(dice.randrange(12))]
    return chain(tokens, 1)


@pytest.mark.parametrize("seed", range(20))
def test_s52_the_count_is_that_of_different_hashes(seed: int) -> None:
    """Whatever comes and goes in whatever order, shared beginnings count once, and in the end nothing is left."""
    dice = random.Random(seed)
    active, plain, here = ActiveBlocks(), Counter[int](), list[list[int]]()
    for _ in range(400):
        if here and dice.random() < 0.5:
            gone = here.pop(dice.randrange(len(here)))
            active.remove(gone)
            plain -= Counter(gone)
        else:
            here.append(prompt(dice))
            active.add(here[-1])
            plain += Counter(here[-1])
        assert len(active) == len(plain)
    while here:
        active.remove(here.pop())
    assert len(active) == 0


def test_splits_that_nobody_needs_are_undone() -> None:
    """After many short visits a long prompt is still one stretch: adding to it takes one step."""
    long = chain(list(range(200)), 1)
    active = ActiveBlocks()
    active.add(long)
    for at in range(1, 200):
        aside = [*long[:at], -at]
        active.add(aside)
        active.remove(aside)
        active.add(long[:at])
        active.remove(long[:at])
    (root,) = active._roots.values()
    assert (root.begin, root.end, root.after, len(active)) == (0, 200, {}, 200)
