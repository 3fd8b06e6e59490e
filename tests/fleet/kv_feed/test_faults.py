"""What goes wrong with one rank costs that rank its view, and nobody else anything (C23, R085)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import msgspec
import pytest

from infera_cli.config.serve import load_serve
from infera_cli.events import Bus
from infera_cli.fleet.kv_feed import feed as feed_module
from infera_cli.fleet.kv_feed import keeper as keeper_module
from infera_cli.fleet.kv_feed.keeper import Room
from infera_cli.fleet.kv_feed.zmq import Publisher as Followed
from infera_cli.fleet.registry import Registry
from infera_cli.routing.prefix import Slot
from infera_cli.routing.sessions import Pins
from infera_cli.wiring import cache as cache_module
from tests.fleet.kv_feed.test_bounds import Loop
from tests.fleet.kv_feed.test_garbage import listening
from tests.fleet.kv_feed.worlds import Noise, Publisher, World, stored, tokens_of

END = (b"", b"\xff" * 8, msgspec.msgpack.encode([1.0, [], 0]))


def records(caplog: pytest.LogCaptureFixture, text: str = "") -> list[logging.LogRecord]:
    return [one for one in caplog.records if one.levelno >= logging.WARNING and text in one.getMessage()]


async def until(what: Callable[[], bool], within: float = 10) -> None:
    async with asyncio.timeout(within):
        while not what():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


def publisher_of(world: World, name: str) -> Followed:
    (found,) = [one for member, one in world.feed._followed.items() if member.id == name]
    assert found.publishers[0].publisher is not None
    return found.publishers[0].publisher


async def beside(world: World) -> tuple[Publisher, Slot]:
    """A healthy worker that is followed."""
    publisher = Publisher()
    publisher.prompt(tokens_of(4))
    slot = world.add("well", publisher, port=7)
    await world.until(slot, tokens_of(4), 4)
    return publisher, slot


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again at once, so to speak."""
    for name in ("FAULT_FIRST", "REFUSED_FIRST"):
        monkeypatch.setattr(keeper_module, name, 0.05)


async def test_an_end_marker_on_the_live_stream_is_no_batch(world: World, noise: Noise) -> None:
    """It is garbage that is counted; tails are looked at as before, and what follows counts."""
    slot = await listening(world, noise)
    noise.batch(stored(tokens_of(2)))
    noise.say(*END)
    noise.batch(stored(tokens_of(3, 1)))
    await world.until(slot, tokens_of(3, 1), 3)
    assert world.hits(slot, tokens_of(2)) == 2
    counters = world.feed.counters["w"]
    assert (counters.malformed, counters.gaps, counters.restarts) == (1, 0, 0)


@pytest.mark.parametrize("where", ["check_tail", "_hear", "_connection"])
async def test_a_fault_of_ours_costs_one_rank_its_view(
    world: World, noise: Noise, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, soon: None,
    where: str,
) -> None:
    """One traceback however often it comes; the rank is dropped and followed anew, the other never."""
    real = getattr(Followed, where)
    broken = False

    def fails(self: Followed, *given: object) -> None:
        if broken and self.name == "w":
            raise OverflowError("int too big to convert")
        real(self, *given)

    monkeypatch.setattr(Followed, where, fails)
    publisher, well = await beside(world)
    slot = await listening(world, noise)
    noise.batch(stored(tokens_of(2)))
    await world.until(slot, tokens_of(2), 2)
    broken = True
    counters = world.feed.counters["w"]
    if where == "_connection":
        noise.close()
        await until(lambda: counters.faults == 1)
    async with asyncio.timeout(10):
        while counters.faults < 2 and where != "_connection":
            noise.payload(b"")
            world.feed._tail_at = 0.0
            world.feed.tick(1.0)
            await asyncio.sleep(0.01)
    await world.until(slot, tokens_of(2), 0)
    publisher.prompt(tokens_of(3, 1))
    await world.until(well, tokens_of(3, 1), 3)
    assert world.hits(well, tokens_of(4)) == 4
    broken = False
    (record,) = records(caplog, "a fault of ours")
    assert record.exc_info is not None
    assert record.exc_info[0] is OverflowError
    assert world.feed.counters["well"].faults == 0
    async with asyncio.timeout(10):
        while where != "_connection" and world.hits(slot, tokens_of(1, 5)) != 1:
            noise.batch(stored(tokens_of(1, 5)))
            await asyncio.sleep(0.02)


async def test_a_publisher_that_cannot_even_be_closed_is_followed_anew(
    world: World, noise: Noise, monkeypatch: pytest.MonkeyPatch, soon: None
) -> None:
    """A fault after a fault."""
    slot = await listening(world, noise)
    publisher = publisher_of(world, "w")
    real = publisher.close

    def close() -> None:
        real()
        raise OSError("odd")

    monkeypatch.setattr(publisher, "close", close)
    publisher._broke(ZeroDivisionError())
    async with asyncio.timeout(10):
        while world.hits(slot, tokens_of(1)) != 1:
            noise.batch(stored(tokens_of(1)))
            await asyncio.sleep(0.02)


async def test_a_search_that_fails_is_begun_again(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an engine's answer does to us, it is asked again, and the log says so once."""
    monkeypatch.setattr(feed_module, "ASK_FIRST", 0.01)
    real, asked = world.feed._published, 0

    async def fails(spec: object) -> object:
        nonlocal asked
        asked += 1
        if asked < 4:
            raise KeyError("odd")
        return await real(spec)  # type: ignore[arg-type]

    monkeypatch.setattr(world.feed, "_published", fails)
    publisher = Publisher()
    publisher.prompt(tokens_of(2))
    slot = world.add("w", publisher)
    await world.until(slot, tokens_of(2), 2)
    assert len(records(caplog, "a fault of ours")) == 1
    assert world.feed.counters["w"].faults == 3


async def test_following_that_ended_gives_no_hits_and_can_be_begun_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All views are void at its end; run again, everything is learned again."""
    publisher, slot = await beside(world)

    def fails(now: float) -> None:
        raise MemoryError

    monkeypatch.setattr(world.feed, "tick", fails)
    with pytest.raises(MemoryError):
        await asyncio.wait_for(world.feed.run(), 10)
    assert world.hits(slot, tokens_of(4)) == 0
    monkeypatch.undo()
    task = asyncio.create_task(world.feed.run())
    await world.until(slot, tokens_of(4), 4)
    publisher.prompt(tokens_of(2, 1))
    await world.until(slot, tokens_of(2, 1), 2)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_following_that_ends_is_told_and_begun_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server looks after the task that follows."""

    class Feed:
        def __init__(self) -> None:
            self.runs = 0

        async def run(self) -> None:
            self.runs += 1
            raise OverflowError

    monkeypatch.setattr(cache_module, "AGAIN_SECONDS", 0.0)
    flags = {"sim": "1", "port": "0", "router_policy": "kv-aware"}
    aware = cache_module.CacheAware(load_serve(flags, {}).settings, Registry(Bus(), pins=Pins(600)))
    feed = Feed()
    task = asyncio.create_task(aware._run(feed))  # type: ignore[arg-type]
    await until(lambda: feed.runs == 2)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    (record,) = records(caplog, "begun again")
    assert record.exc_info is not None
    assert record.exc_info[0] is OverflowError


# ── addresses ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("endpoint", ["tcp://x@y:5", "tcp://é:5", "tcp://a\0b:5"])
async def test_an_address_that_zeromq_refuses_is_told_once_and_tried_again(
    world: World, caplog: pytest.LogCaptureFixture, soon: None, endpoint: str
) -> None:
    """A warning with the reason, counted each time; when the record changes the new address counts."""
    _, well = await beside(world)
    with caplog.at_level(logging.INFO, "infera.kv"):
        world.add("w", None, kv_events_endpoint=endpoint, source="etcd")
        await until(lambda: world.feed.counters.get("w") is not None and world.feed.counters["w"].unusable >= 3)
    (record,) = records(caplog, "cannot be used")
    assert record.getMessage().startswith(f"KV events of w: its address {endpoint!r} cannot be used: ")
    assert not [one for one in caplog.records if one.getMessage().startswith("w: following")]
    publisher = Publisher()
    publisher.prompt(tokens_of(3, 2))
    newer = world.add("w", publisher, source="etcd")
    await world.until(newer, tokens_of(3, 2), 3)
    assert world.hits(well, tokens_of(4)) == 4


async def test_a_replay_address_that_zeromq_refuses_leaves_the_live_stream(
    world: World, noise: Noise, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning; the rank is followed as one that keeps nothing."""
    slot = world.add("w", None, kv_events_endpoint=noise.endpoint, kv_replay_endpoint="tcp://x@y:5")
    await noise.heard()
    noise.batch(stored(tokens_of(2)))
    await world.until(slot, tokens_of(2), 2)
    (record,) = records(caplog)
    assert "its replay address 'tcp://x@y:5' cannot be used" in record.getMessage()
    assert world.feed.counters["w"].unusable == 1


async def test_an_unreachable_replay_address_does_not_freeze_the_view(
    world: World, noise: Noise, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first attempts live batches count at once, whatever becomes of looks at the tail."""
    monkeypatch.setattr("infera_cli.fleet.kv_feed.zmq.REPLAY_SECONDS", 0.2)
    slot = world.add("w", None, kv_events_endpoint=noise.endpoint, kv_replay_endpoint="tcp://127.0.0.1:9")
    await noise.heard()
    counters = world.feed.counters["w"]
    await until(lambda: counters.replays_failed == 1)
    await until(lambda: publisher_of(world, "w")._dealer is None)
    for number in range(20):
        world.feed._tail_at = 0.0
        world.feed.tick(1.0)
        noise.batch(stored(tokens_of(2, number)))
        await world.until(slot, tokens_of(2, number), 2, within=0.15)
        await asyncio.sleep(0.05)
    assert len(records(caplog)) == 1
    assert counters.replays <= 8
    assert counters.malformed == counters.gaps == 0


# ── many ranks ───────────────────────────────────────────────────────────────────────────────────────
async def test_many_ranks_are_opened_in_turns_and_not_without_end(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A record of 65,536 ranks holds nobody up; beyond what descriptors allow one warning, and load decides."""
    world.feed._room = Room(50)
    slots = [world.index.open(f"w#dp{number}" if number else "w") for number in range(2000)]
    world._slots = lambda worker, count: slots  # type: ignore[method-assign]
    world.feed._slots = world._slots
    async with Loop() as loop:
        nobody = "tcp://127.0.0.1:9"
        world.add("w", None, kv_events_endpoint=nobody, kv_replay_endpoint=nobody, dp_size=65536)
        await until(lambda: bool(world.feed._followed))
        followed = next(iter(world.feed._followed.values()))
        await until(lambda: len(followed.publishers) == 1024)
        await until(lambda: followed.publishers[-1].counters.unusable > 0)
    assert sum(one.publisher is not None for one in followed.publishers) == 50
    assert len(records(caplog, "file descriptors")) == 1
    assert loop.worst < 0.25
    world.registry.remove("w")
    await until(lambda: world.feed._room.taken == 0)


def test_half_of_the_descriptors_are_left_for_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six for each stream."""
    monkeypatch.setattr("resource.getrlimit", lambda which: (1200, 4096))
    room = Room()
    assert room.most == 100
    assert [room.take() for _ in range(101)] == [True] * 100 + [False]
