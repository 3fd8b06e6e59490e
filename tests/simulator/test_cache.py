"""KV blocks: references, names, eviction (engines §7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.simulator.cache import BlockCache, Removed, Stored


def filled(capacity: int, *names: int) -> BlockCache:
    """A cache in which the blocks `names` of one prompt were used and left."""
    cache = BlockCache(capacity, record=True)
    blocks = cache.take(len(names))
    cache.name(blocks, names, 0, "first")
    cache.release(blocks, names)
    return cache


def test_released_blocks_can_be_found_by_their_chain() -> None:
    """A prompt that was served before is found block by block, up to the first difference and the limit."""
    cache = filled(4, 1, 2, 3)
    assert len(cache.find([1, 2, 9], 3)) == 2
    assert len(cache.find([1, 2, 3], 2)) == 2
    assert cache.find([2, 3], 2) != []          # a name stands for its whole prefix
    assert cache.find([9], 1) == []


def test_taking_uses_blank_blocks_before_it_evicts() -> None:
    """Content is forgotten only when there is no empty block left."""
    cache = filled(4, 1, 2)
    cache.take(2)
    assert cache.named == 2
    cache.take(1)
    assert cache.named == 1


def test_eviction_is_leaf_first_within_a_prompt() -> None:
    """The end of a prompt goes before its beginning, so what stays can still be found."""
    cache = filled(3, 1, 2, 3)
    cache.take(1)
    assert len(cache.find([1, 2, 3], 3)) == 2
    assert cache.events()[-1] == Removed(3)


def test_eviction_takes_the_least_recently_used_prompt() -> None:
    """A prompt that was touched again outlives one that was not."""
    cache = BlockCache(2)
    for name in (1, 2):
        blocks = cache.take(1)
        cache.name(blocks, [name], 0)
        cache.release(blocks, [name])
    again = cache.find([1], 1)
    cache.acquire(again)
    cache.release(again, [1])
    cache.take(1)
    assert cache.find([1], 1) != []
    assert cache.find([2], 1) == []


def test_used_blocks_are_never_evicted() -> None:
    """A block that a sequence refers to cannot be taken, and asking for too much changes nothing."""
    cache = filled(2, 1, 2)
    held = cache.find([1], 1)
    cache.acquire(held)
    with pytest.raises(ValueError, match="2 blocks wanted, 1 free"):
        cache.take(2)
    assert (cache.free, cache.named) == (1, 2)


def test_a_second_copy_keeps_the_name_alive() -> None:
    """The same content in two blocks is stored twice and removed twice (engines §1.8.5)."""
    cache = BlockCache(2, record=True)
    for _ in range(2):
        block = cache.take(1)
        cache.name(block, [7], 0, "x")
        cache.release(block, [7])
        # The second is taken from the blank block, although the first is cached.
    assert cache.events() == [Stored((7,), None, "x", 0), Stored((7,), None, "x", 0)]
    cache.take(1)
    assert cache.find([7], 1) != []
    cache.take(1)
    assert cache.find([7], 1) == []
    assert cache.events() == [Removed(7), Removed(7)]


def test_a_name_twice_in_one_prompt_is_two_copies() -> None:
    """A malformed trace that repeats a name does not upset the books."""
    cache = filled(3, 1, 1, 2)
    cache.take(3)
    assert sorted(event.hash for event in cache.events() if isinstance(event, Removed)) == [1, 1, 2]
    assert cache.named == 0


def test_blocks_without_a_name_are_blank_again() -> None:
    """What was never full is found by nobody and taken before anything is evicted."""
    cache = BlockCache(3)
    blocks = cache.take(3)
    cache.name(blocks[:1], [1], 0)
    cache.release(blocks, [1])
    assert cache.take(2) == blocks[1:]
    assert cache.find([1], 1) == blocks[:1]


def test_stored_event_names_parent_and_place() -> None:
    """Blocks that continue a prompt say which block they follow."""
    cache = BlockCache(4, record=True)
    blocks = cache.take(3)
    cache.name(blocks[:1], [1, 2, 3], 0, "r")
    cache.name(blocks[1:], [1, 2, 3], 1, "r")
    assert cache.events() == [Stored((1,), None, "r", 0), Stored((2, 3), 1, "r", 1)]


def test_clearing_is_refused_while_blocks_are_used() -> None:
    """A reset forgets everything, or says no."""
    cache = filled(2, 1, 2)
    held = cache.find([1], 1)
    cache.acquire(held)
    assert cache.clear() is False
    cache.release(held, [1])
    assert cache.clear() is True
    assert (cache.named, cache.free) == (0, 2)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.booleans()), max_size=60))
def test_any_history_keeps_the_books(history: list[tuple[int, int, bool]]) -> None:
    """Whatever is taken and released: never over capacity, and stored minus removed is what is named."""
    cache = BlockCache(8, record=True)
    held: list[tuple[list[int], list[int]]] = []
    for prompt, length, leave in history:
        if leave and held:
            cache.release(*held.pop(0))
            continue
        chain = [prompt * 100 + place for place in range(length)]
        found = cache.find(chain, length)
        if length - len(found) + cache.idle(found) > cache.free:
            continue
        cache.acquire(found)
        blocks = found + cache.take(length - len(found))
        cache.name(blocks[len(found):], chain, len(found))
        held.append((blocks, chain))
        assert cache.used == len({block for blocks, _ in held for block in blocks}) <= cache.capacity
    balance: dict[int, int] = {}
    for event in cache.events():
        for name in event.hashes if isinstance(event, Stored) else (event.hash,):
            balance[name] = balance.get(name, 0) + (1 if isinstance(event, Stored) else -1)
    assert min(balance.values(), default=0) >= 0
    assert sum(1 for count in balance.values() if count) == cache.named
