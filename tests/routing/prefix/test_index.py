"""Who holds which prefix (rulings 16, 17; R082, R083, R085, R088; S62)."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest

from infera_cli.blocks import chain
from infera_cli.protocol.kv_events import Cleared, Removed, Stored, decode
from infera_cli.routing.prefix import BLOCK_BYTES, PrefixIndex, Slot, first_parent, unit_of
from tests.fixtures.kv_events.recorded import Recording

SIZE = 16


def tokens_of(blocks: int, salt: int = 0, size: int = SIZE) -> list[int]:
    return [salt * 100_000 + number for number in range(blocks * size)]


class World:
    """One index, workers w0…, blocks of 16 tokens named 1000, 1001, … by the engine."""

    def __init__(self, workers: int = 1, **options: int) -> None:
        self.index = PrefixIndex(**options)
        self.slots = [self.index.open(f"w{number}") for number in range(workers)]

    def store(self, slot: Slot, first: int, count: int, tokens: list[int], *, parent: int | None = None) -> int:
        """Blocks `first`… of the prompt `tokens`, as the engine announces them."""
        names = range(1000 + first, 1000 + first + count)
        own = tokens[first * SIZE : (first + count) * SIZE]
        return self.index.store(slot, parent, list(names), own, SIZE).blocks

    def hits(self, slot: Slot, tokens: list[int]) -> int:
        """Leading blocks of the prompt that the slot holds."""
        return dict(self.index.depths(chain(tokens, SIZE), slot.bit)).get(slot.bit, 0)


def test_hits_are_the_leading_run() -> None:
    """What is known of a prompt ends at its first block that is not held."""
    world = World()
    (slot,) = world.slots
    tokens = tokens_of(6)
    assert world.store(slot, 0, 4, tokens) == 4
    assert world.hits(slot, tokens) == 4
    assert world.hits(slot, tokens[: 2 * SIZE + 5]) == 2
    assert world.hits(slot, tokens_of(6, salt=1)) == 0
    world.index.remove(slot, [1001])
    assert world.hits(slot, tokens) == 1


def test_depths_of_many_workers_are_one_walk() -> None:
    """Each worker's depth is what a walk of its own would find."""
    world = World(70)
    tokens = tokens_of(300)
    dice = random.Random(1)
    depths = {}
    for slot in world.slots:
        depth = dice.choice((0, 1, dice.randrange(300), 300))
        depths[slot.bit] = depth
        for start in range(0, depth, 50):
            world.store(slot, start, min(50, depth - start), tokens, parent=999 + start if start else None)
    among = sum(slot.bit for slot in world.slots)
    found = world.index.depths(chain(tokens, SIZE), among)
    assert [depth for _, depth in found] == sorted({depth for depth in depths.values() if depth})
    for bits, depth in found:
        assert all(depths[bit] == depth for bit in depths if bit & bits)
    assert sum(bits for bits, _ in found) == sum(bit for bit, depth in depths.items() if depth)


def test_r082_a_prefix_is_credited_once_its_middle_is_known() -> None:
    """Blocks whose parent is unknown wait; until it comes nothing beyond the gap is credited."""
    world = World()
    (slot,) = world.slots
    tokens = tokens_of(4)
    assert world.store(slot, 2, 1, tokens, parent=1001) == 0
    assert world.hits(slot, tokens) == 0
    assert world.store(slot, 0, 1, tokens) == 1
    assert world.hits(slot, tokens) == 1
    assert world.store(slot, 1, 1, tokens, parent=1000) == 2
    assert world.store(slot, 3, 1, tokens, parent=1002) == 1
    assert world.hits(slot, tokens) == 4


def test_orphans_are_bounded_and_may_be_removed_before_their_parent_comes() -> None:
    """A removal reaches waiting blocks too; too many of them push the oldest out."""
    world = World()
    (slot,) = world.slots
    tokens = tokens_of(3)
    world.store(slot, 1, 2, tokens, parent=1000)
    assert world.index.remove(slot, [1002]) == 0
    world.store(slot, 0, 1, tokens)
    assert world.hits(slot, tokens) == 2
    for number in range(2000):
        world.index.store(slot, 10**6 + number, [number], tokens[:SIZE], SIZE)
    assert slot.waiting == 512


def test_copies_are_counted_and_removed_one_by_one() -> None:
    """vLLM announces a block again for every copy and removes it once per copy (engines §1.8.5)."""
    world = World()
    (slot,) = world.slots
    tokens = tokens_of(2)
    for _ in range(3):
        world.store(slot, 0, 2, tokens)
    for left in (2, 2, 1):
        world.index.remove(slot, [1001])
        assert world.hits(slot, tokens) == left
    assert world.index.remove(slot, [1001]) == 1


def test_r085_unknown_hashes_do_not_stop_a_removal() -> None:
    """Removed [unknown, B1, B2]: B1 and B2 are gone, the unknown one is counted."""
    world = World()
    (slot,) = world.slots
    tokens = tokens_of(2)
    world.store(slot, 0, 2, tokens)
    assert world.index.remove(slot, [77, 1000, 1001]) == 1
    assert world.hits(slot, tokens) == 0
    assert len(world.index) == 0


@pytest.mark.parametrize(
    ("hashes", "tokens", "size"),
    [([1], list(range(17)), 16), ([1, 2], list(range(16)), 16), ([], [], 16), ([1], [], 16), ([1], [1 << 40] * 16, 16),
     ([1], [-1] * 16, 16)],
)  # fmt: skip
def test_s62_events_that_do_not_add_up_are_refused(hashes: list[int], tokens: list[int], size: int) -> None:
    """Tokens and hashes that disagree change nothing and never crash: what cannot be removed is not held."""
    world = World()
    assert world.index.store(world.slots[0], None, hashes, tokens, size).refused
    assert len(world.index) == 0


def test_a_second_block_size_or_group_is_refused() -> None:
    """One group and one page size a rank; hybrid models announce others too (engines §1.8.5)."""
    world = World()
    (slot,) = world.slots
    world.index.store(slot, None, [1], list(range(16)), 16, group=0)
    assert world.index.store(slot, None, [2], list(range(32)), 32, group=0).refused
    assert world.index.store(slot, None, [2], list(range(16)), 16, group=1).refused
    assert world.index.remove(slot, [1], group=1) == 0
    assert world.hits(slot, list(range(16))) == 1


def test_clearing_leaves_others_alone() -> None:
    """A cleared worker holds nothing, at once, however much it held; others keep theirs."""
    world = World(2)
    tokens = tokens_of(9000)
    for slot in world.slots:
        for start in range(0, 9000, 100):
            world.store(slot, start, 100, tokens, parent=999 + start if start else None)
    first, second = world.slots
    world.index.clear(first)
    assert world.hits(first, tokens) == 0
    assert world.hits(second, tokens) == 9000
    while world.index.tidy():
        pass
    assert len(world.index) == 9000
    world.index.close(second)
    while world.index.tidy():
        pass
    assert (len(world.index), world.index.size) == (0, 0)


def test_a_number_is_given_out_again_only_when_its_bits_are_gone() -> None:
    """A newcomer never inherits what somebody else held."""
    world = World()
    (slot,) = world.slots
    tokens = tokens_of(6000)
    for start in range(0, 6000, 100):
        world.store(slot, start, 100, tokens, parent=999 + start if start else None)
    world.index.close(slot)
    newcomers = [world.index.open(f"n{number}") for number in range(3)]
    assert all(world.hits(newcomer, tokens) == 0 for newcomer in newcomers)


def test_over_the_limit_the_least_recently_used_worker_loses_its_tail() -> None:
    """Tails leave first, so what stays is still a prefix (rulings 17)."""
    world = World(2, max_bytes=200 * 300)
    idle, busy = world.slots
    old, new = tokens_of(200), tokens_of(200, salt=1)
    world.index.store(idle, None, list(range(200)), old, SIZE, now=1.0)
    world.index.store(busy, None, list(range(200)), new, SIZE, now=2.0)
    assert world.index.size <= 200 * 300
    assert world.hits(busy, new) == 200
    assert 0 < world.hits(idle, old) == len(idle) < 200
    assert world.index.evicted == 200 - len(idle)


def test_rulings_16_small_pages_are_joined_to_units_of_sixteen() -> None:
    """An engine with pages of one token is compared in the same units as one with pages of sixteen."""
    assert [unit_of(size) for size in (1, 4, 12, 16, 32)] == [16, 16, 24, 16, 32]
    index = PrefixIndex()
    fine, coarse = index.open("fine"), index.open("coarse")
    tokens = tokens_of(3)
    index.store(coarse, None, [1, 2, 3], tokens, 16)
    for place in range(40):  # one event a page, as SGLang does
        index.store(fine, None if not place else 99 + place, [100 + place], [tokens[place]], 1)
    depths = dict(index.depths(chain(tokens, 16), fine.bit | coarse.bit))
    assert depths == {fine.bit: 2, coarse.bit: 3}
    index.remove(fine, [139, 138, 137, 136, 135, 134, 133, 132, 131])
    assert dict(index.depths(chain(tokens, 16), fine.bit)) == {fine.bit: 1}


def test_c28_salts_adapters_and_images_never_match_plain_text() -> None:
    """They are part of a block's identity: in the first parent, or in the block they belong to."""
    index = PrefixIndex()
    slot = index.open("w")
    tokens = tokens_of(2)
    plain = chain(tokens, SIZE)
    index.store(slot, None, [1, 2], tokens, SIZE, salt="s")
    index.store(slot, None, [3, 4], tokens, SIZE, adapter="lora", extras=[["lora"], ["lora"]])
    index.store(slot, None, [5, 6], tokens, SIZE, adapter="lora", extras=[["lora", "s"], ["lora"]])
    index.store(slot, None, [7, 8], tokens, SIZE, extras=[None, [["image-1", 3]]])
    assert dict(index.depths(plain, slot.bit)) == {slot.bit: 1}  # before the image it is plain text
    for adapter, salt in ((None, "s"), ("lora", None), ("lora", "s")):
        hashes = chain(tokens, SIZE, first_parent(adapter, salt))
        assert dict(index.depths(hashes, slot.bit)) == {slot.bit: 2}
    assert not index.depths(chain(tokens, SIZE, first_parent("s", None)), slot.bit)


@pytest.mark.parametrize(("adapter", "first", "salt"), [
    ("a", ["a", "a"], "a"), ("a", ["a"], None), (None, ["a"], "a"), ("a", [["lora", "a"]], None),
    ("a", [["lora", "a"], ["cache_salt", "s"]], "s"), (None, [["cache_salt", "s"]], "s"),
])  # fmt: skip
def test_c28_a_salt_may_be_named_as_its_adapter_and_keys_may_be_tagged(
    adapter: str | None, first: list[Any], salt: str | None
) -> None:
    """Keys come in order: the adapter's name, then images, then the salt; of two equal ones the last is the salt."""
    index = PrefixIndex()
    slot = index.open("w")
    tokens = tokens_of(1)
    index.store(slot, None, [1], tokens, SIZE, adapter=adapter, extras=[first])
    for other in (None, "a", "s"):
        found = index.depths(chain(tokens, SIZE, first_parent(adapter, other)), slot.bit)
        assert bool(found) == (other == salt)


@pytest.mark.parametrize("extras", [
    [None, ["0123abcd"]], [["0123abcd", "s"], None], [[["0123abcd", 0], "s"], None], [[b"digest"], None],
])  # fmt: skip
def test_c28_what_is_no_salt_is_an_image_in_whatever_form(extras: list[Any]) -> None:
    """Older engines give an image's hash as bare text; plain text with or without the salt matches none of it."""
    index = PrefixIndex()
    slot = index.open("w")
    tokens = tokens_of(2)
    index.store(slot, None, [1, 2], tokens, SIZE, extras=extras)
    for salt in (None, "s"):
        found = dict(index.depths(chain(tokens, SIZE, first_parent(None, salt)), slot.bit))
        assert found.get(slot.bit, 0) == (1 if extras[0] is None and salt is None else 0)


def test_promises_count_until_they_lapse_or_come_true() -> None:
    """A routed prompt's blocks are credited at once; what is never announced is void (rulings 16)."""
    world = World()
    (slot,) = world.slots
    tokens = tokens_of(4)
    hashes = chain(tokens, SIZE)
    world.index.promise(slot, hashes, 0, until=10.0)
    assert world.hits(slot, tokens) == 4
    world.store(slot, 0, 2, tokens)
    assert world.index.lapse(slot, hashes, 0, 10.0) == 2
    assert world.hits(slot, tokens) == 2
    world.index.promise(slot, hashes, 2, until=10.0)
    world.index.promise(slot, hashes, 2, until=20.0)  # somebody else asks for the same
    assert world.index.lapse(slot, hashes, 2, 10.0) == 0
    assert world.hits(slot, tokens) == 4


def test_a_promise_of_a_worker_that_left_takes_nothing_from_whoever_comes_after() -> None:
    """Its place is given to another, whose blocks are real; what is said of the old one counts no more."""
    index = PrefixIndex()
    tokens = tokens_of(3)
    hashes = chain(tokens, SIZE)
    gone = index.open("gone")
    index.promise(gone, hashes, 0, until=600.0)
    index.close(gone)
    new = index.open("new")
    assert new.number == gone.number
    index.store(new, None, [1, 2, 3], tokens, SIZE)
    assert index.lapse(gone, hashes, 0, 600.0) == 0
    index.promise(gone, hashes, 0, until=600.0)
    assert index.store(gone, None, [7], tokens[:SIZE], SIZE).refused
    assert index.remove(gone, [1]) == 1
    assert dict(index.depths(hashes, new.bit)) == {new.bit: 3}
    index.close(new)
    assert (index.size, len(index)) == (0, 0)


def test_promises_keep_to_a_share_of_the_limit() -> None:
    """However many prompts are under way: real blocks stay, and the index stays under its limit."""
    index = PrefixIndex(max_bytes=400 * BLOCK_BYTES)
    slot = index.open("w")
    held = tokens_of(100)
    index.store(slot, None, list(range(1, 101)), held, SIZE)
    asked = [chain(tokens_of(60, salt=number), SIZE) for number in range(1, 12)]
    for hashes in asked:
        index.promise(slot, hashes, 0, until=10.0)
        assert index.size <= 400 * BLOCK_BYTES
    assert dict(index.depths(asked[0], slot.bit)) == {slot.bit: 50}
    assert dict(index.depths(chain(held, SIZE), slot.bit)) == {slot.bit: 100}
    for hashes in asked:
        index.lapse(slot, hashes, 0, 10.0)
    assert index.size == 200 * BLOCK_BYTES


@pytest.mark.parametrize("name", ["int", "bytes"])
def test_rulings_31_the_view_predicts_what_a_real_vllm_reports(name: str) -> None:
    """After each recorded request the index knows, to the block, what vLLM says of the next one's cache."""
    recording = Recording(name)
    index = PrefixIndex()
    slot = index.open("w")
    batches = [decode(frames[-1]) for frames in recording.frames]
    size = recording.block_size
    for batch in batches:
        for event in batch.events:
            if isinstance(event, Stored):
                index.store(
                    slot, event.parent, event.hashes, event.tokens, event.block_size, adapter=event.adapter,
                    salt=event.salt, extras=event.extras, group=event.group,
                )  # fmt: skip
            elif isinstance(event, Removed):
                assert index.remove(slot, event.hashes, event.group) == 0
            else:
                assert isinstance(event, Cleared)
                index.clear(slot)
    first = recording.requests[0]["ask"]["prompt"]
    assert len(slot) == len(first) // size  # all else was evicted or reset in the end
    assert dict(index.depths(chain(first, size), slot.bit)) == {slot.bit: len(first) // size}


def test_r088_hashes_do_not_depend_on_the_processs_seed() -> None:
    """Three processes with different seeds of Python's own hash compute the same chain."""
    code = "from infera_cli.blocks import chain; print(chain(list(range(64)), 16))"
    said = set()
    for seed in ("random", "0", "123"):
        run = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        said.add(run.stdout)
    assert said == {f"{chain(list(range(64)), 16)}\n"}
