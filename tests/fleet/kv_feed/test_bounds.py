"""What a single message, record or address may cost: nothing that others notice (R085; docs/decisions/0010)."""

from __future__ import annotations

import asyncio
import gc
import struct
from typing import Self

import msgspec
import pytest

from tests.fleet.kv_feed.test_garbage import lines, listening
from tests.fleet.kv_feed.worlds import SIZE, Noise, World, stored, tokens_of


def nothings(count: int) -> bytes:
    """A batch of so many empty arrays."""
    return b"\x93\xcb" + bytes(8) + b"\xdd" + struct.pack(">I", count) + b"\x90" * count + b"\x00"


class Loop:
    """How long the event loop was away, at worst."""

    def __init__(self) -> None:
        self.worst = 0.0

    async def __aenter__(self) -> Self:
        gc.collect()
        gc.freeze()
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        gc.unfreeze()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0)
            self.worst = max(self.worst, loop.time() - before)


@pytest.mark.parametrize("count", [25_000_000, 15_000_000, 60_000])
async def test_a_batch_of_nothings_holds_nobody_up(
    world: World, noise: Noise, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """Counted, told once, and the next batch counts; nobody waited."""
    slot = await listening(world, noise)
    noise.payload(nothings(count))
    async with Loop() as loop:
        noise.batch(stored(tokens_of(3)))
        await world.until(slot, tokens_of(3), 3, within=30)
    assert loop.worst < 0.25  # 0.05 where nobody else computes; it was some seconds
    assert 1 <= world.feed.counters["w"].malformed <= 400
    assert len(lines(caplog)) == 1


async def test_sixty_thousand_blocks_come_and_go_in_one_event_each(world: World, noise: Noise) -> None:
    """As an engine tells that loaded a very long prompt, and drops it again beside orphans."""
    slot = await listening(world, noise)
    tokens = tokens_of(60_000)
    noise.batch(stored(tokens))
    for number in range(100):
        noise.batch(stored(tokens_of(2, 1), parent_block_hash=number + 1, block_hashes=[900 + number, 5000 + number]))
    async with Loop() as loop:
        await world.until(slot, tokens, 60_000, within=30)
        noise.batch({"type": "BlockRemoved", "block_hashes": stored(tokens)["block_hashes"], "medium": "GPU"})
        noise.batch({"type": "BlockRemoved", "block_hashes": list(range(10**6, 10**6 + 2000)), "medium": "GPU"})
        noise.batch(stored(tokens_of(2, 3)))
        await world.until(slot, tokens_of(2, 3), 2, within=30)
    assert len(slot) == 2
    assert world.feed.counters["w"].unknown == 2000
    assert loop.worst < 0.25


async def test_two_thousand_events_in_a_batch_are_all_taken(world: World, noise: Noise) -> None:
    """Page by page, as SGLang does."""
    slot = await listening(world, noise)
    tokens = tokens_of(2000)
    whole = stored(tokens)
    hashes = whole["block_hashes"]
    pages = [
        {**whole, "block_hashes": [hash_], "parent_block_hash": hashes[place - 1] if place else None,
         "token_ids": tokens[place * SIZE : (place + 1) * SIZE]}
        for place, hash_ in enumerate(hashes)
    ]  # fmt: skip
    assert len(msgspec.msgpack.encode(pages)) > 200_000
    noise.batch(*pages)
    await world.until(slot, tokens, 2000)
    assert world.feed.counters["w"].batches == 1
    assert world.feed.counters["w"].events == 2000
