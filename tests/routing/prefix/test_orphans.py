"""Events that wait for a parent: what a router hears that starts beside a warm engine (rulings 17; R082)."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest

from infera_cli.blocks import chain
from infera_cli.routing.prefix import BLOCK_BYTES, PrefixIndex, Slot
from infera_cli.routing.prefix.orphans import ORPHANS_KEPT, Orphans, Run

SIZE = 16


def run(parent: int, hashes: Sequence[int]) -> Run:
    return Run(parent, hashes, bytes(4 * SIZE * len(hashes)))


def hits(index: PrefixIndex, slot: Slot, tokens: Sequence[int], size: int = SIZE) -> int:
    return dict(index.depths(chain(list(tokens), size), slot.bit)).get(slot.bit, 0)


def full(index: PrefixIndex, slot: Slot, blocks: int = 64) -> list[int]:
    """A slot with its fill of orphans; all their hashes."""
    tokens = [0] * (SIZE * blocks)
    for number in range(ORPHANS_KEPT + 8):
        first = 1000 * (number + 1)
        index.store(slot, first - 1, list(range(first, first + blocks)), tokens, SIZE)
    assert slot.waiting == ORPHANS_KEPT
    return [1000 * (n + 1) + at for n in range(8, ORPHANS_KEPT + 8) for at in range(blocks)]


def seconds(index: PrefixIndex, slot: Slot, hashes: Sequence[int]) -> float:
    before = time.perf_counter()
    assert index.remove(slot, hashes) == len(hashes)
    return time.perf_counter() - before


def test_an_unknown_removal_costs_the_same_beside_any_number_of_orphans() -> None:
    """20,000 of them, beside none and beside 512 runs of 64 blocks: the same time, within a factor."""
    index = PrefixIndex()
    empty, crowded = index.open("empty"), index.open("crowded")
    full(index, crowded)
    unknown = list(range(10**9, 10**9 + 20_000))
    alone = min(seconds(index, empty, unknown) for _ in range(3))
    beside = min(seconds(index, crowded, unknown) for _ in range(3))
    assert beside < 8 * alone + 0.01  # a search through all of them took some thousand times as long


def test_every_block_that_waits_can_be_removed_in_any_order() -> None:
    """None is unknown, and nothing is left of them in the end."""
    index = PrefixIndex()
    slot = index.open("w")
    tokens = [0] * (SIZE * 8)
    for number in range(64):
        index.store(slot, 1000 * number + 999, list(range(1000 * number, 1000 * number + 8)), tokens, SIZE)
    hashes = [1000 * number + at for number in range(64) for at in range(8)]
    random.Random(1).shuffle(hashes)
    assert index.remove(slot, hashes) == 0
    assert (slot.waiting, slot.orphans.bytes, index.size) == (0, 0, 0)


def test_long_runs_wait_in_pieces() -> None:
    """All of it is adopted when the parent comes; what follows a removed block waits for that to come again."""
    for removed in (None, 1000, 1448, 1500, 1999):
        index = PrefixIndex()
        slot = index.open("w")
        tokens = [number % 97 for number in range(SIZE * 1001)]
        assert index.store(slot, 999, list(range(1000, 2000)), tokens[SIZE:], SIZE).orphan
        if removed is not None:
            assert index.remove(slot, [removed]) == 0
        index.store(slot, None, [999], tokens[:SIZE], SIZE)
        assert hits(index, slot, tokens) == (1001 if removed is None else removed - 999)
        if removed is not None:
            at = (removed - 999) * SIZE
            index.store(slot, removed - 1, [removed], tokens[at : at + SIZE], SIZE)
            assert hits(index, slot, tokens) == 1001


def test_a_hash_in_several_runs_is_removed_once_a_copy() -> None:
    """The first run that has it loses it first; what is left over is found still."""
    waiting = Orphans()
    waiting.keep(run(1, [10, 11, 12]))
    waiting.keep(run(2, [11, 13]))
    waiting.keep(run(3, [11, 11]))
    assert [waiting.removed(11) for _ in range(2)] == [True, True]
    assert [found.hashes for found in waiting.adopted([1, 2, 3])] == [[10], [11, 11]]
    assert [found.hashes for found in waiting.adopted([11])] == [[12], [13]]
    assert (waiting.count, waiting.bytes, waiting.removed(11), waiting.removed(10)) == (0, 0, False, False)


@pytest.mark.parametrize("seed", range(20))
def test_accounts_agree_after_any_history(seed: int) -> None:
    """Random events over few hashes: what is counted is what is there."""
    dice = random.Random(seed)
    index = PrefixIndex(max_bytes=dice.choice([None, 3000]))
    slots = [index.open("a"), index.open("b")]
    for _ in range(2000):
        slot, kind = dice.choice(slots), dice.random()
        hashes = [dice.randrange(40) for _ in range(dice.randrange(1, 5))]
        size = 16 if dice.random() < 0.97 else 32
        if kind < 0.6:
            parent = dice.randrange(40) if dice.random() < 0.9 else None
            index.store(slot, parent, hashes, [hash_ % 7 for hash_ in hashes for _ in range(size)], size)
        elif kind < 0.99:
            index.remove(slot, hashes)
        else:
            index.clear(slot)
    while index.tidy():
        pass
    waiting = sum(slot.orphans.bytes for slot in slots)
    assert index.size == (sum(map(len, slots)) + len(index)) * BLOCK_BYTES + waiting
    for slot in slots:
        index.clear(slot)
    while index.tidy():
        pass
    assert index.size == 0


def test_orphans_count_towards_the_limit_and_leave_before_blocks() -> None:
    """They are hits of nobody."""
    index = PrefixIndex(max_bytes=100 * BLOCK_BYTES)
    slot = index.open("w")
    tokens = list(range(SIZE * 20))
    index.store(slot, None, list(range(20)), tokens, SIZE)
    for number in range(50):
        index.store(slot, 10**6 + number, [2000 + number], tokens[:SIZE], SIZE)
        assert index.size <= 100 * BLOCK_BYTES
    assert hits(index, slot, tokens) == 20
    assert 0 < slot.waiting < 50


def test_orphans_of_another_block_size_are_not_linked() -> None:
    """A root of a new size, while nothing is held: what waited was cut otherwise, and would be wrong hits."""
    index = PrefixIndex()
    slot = index.open("w")
    tokens = list(range(64))
    assert index.store(slot, 100, [101, 102], tokens[32:64], 16).orphan
    assert index.store(slot, None, [100], tokens[:32], 32).blocks == 1
    assert slot.waiting == 0
    assert index.remove(slot, [102]) == 1
    assert hits(index, slot, tokens, 32) == 1


def test_an_orphan_of_another_size_or_group_waits_not_beside_those_there_are() -> None:
    """Hybrid models announce several by turns, and the first one settles which is indexed."""
    index = PrefixIndex()
    slot = index.open("w")
    tokens = list(range(64))
    assert index.store(slot, 100, [101], tokens[16:32], 16, group=0).orphan
    assert index.store(slot, 100, [101], tokens[:32], 32, group=0).refused
    assert index.store(slot, 100, [101], tokens[:16], 16, group=1).refused
    assert index.store(slot, None, [100], tokens[:16], 16).blocks == 2
    assert hits(index, slot, tokens) == 2


def test_a_refused_event_settles_nothing() -> None:
    """What cannot be packed leaves size and group as they were."""
    index = PrefixIndex()
    slot = index.open("w")
    assert index.store(slot, 100, [101], list(range(16, 32)), 16).orphan
    assert index.store(slot, None, [7], [-1] * 32, 32).refused
    assert (slot.block_size, slot.waiting) == (16, 1)
