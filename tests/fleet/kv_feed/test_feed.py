"""Events over real ZeroMQ, from publishers that come, go, restart and fall silent (C8, C25, C26; R080, R085)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from infera_cli.events import WorkerChanged
from infera_cli.fleet.kv_feed import feed as feed_module
from tests.fleet.kv_feed.worlds import SIZE, Noise, Publisher, World, tokens_of


@pytest.mark.parametrize(("form", "hashes"), [("map", "int"), ("array", "signed"), ("batch-map", "bytes")])
async def test_what_an_engine_announces_is_known(world: World, form: str, hashes: str) -> None:
    """Before and after we came, stored and removed, in every form."""
    publisher = Publisher(form=form, hashes=hashes)
    publisher.prompt(tokens_of(5))
    slot = world.add("w", publisher)
    await world.until(slot, tokens_of(5), 5)
    publisher.prompt(tokens_of(3, 1))
    await world.until(slot, tokens_of(3, 1), 3)
    publisher.remove(tokens_of(5))
    await world.until(slot, tokens_of(5), 0)
    publisher.events.cleared()
    await world.until(slot, tokens_of(3, 1), 0)


async def test_c25_a_router_that_starts_late_learns_what_was_said(world: World) -> None:
    """Existing prefixes are replayed at first contact."""
    publisher = Publisher()
    for salt in range(20):
        publisher.prompt(tokens_of(4, salt))
    slot = world.add("w", publisher)
    for salt in range(20):
        await world.until(slot, tokens_of(4, salt), 4)
    assert world.feed.counters["w"].batches == 20


async def test_c26_a_restarted_engine_begins_with_nothing(world: World) -> None:
    """Another process at the same address: the old view is gone, the new one is learned."""
    publisher = Publisher()
    publisher.prompt(tokens_of(6))
    slot = world.add("w", publisher)
    await world.until(slot, tokens_of(6), 6)
    at = publisher.address
    publisher.close()
    again = Publisher(at=at)
    again.prompt(tokens_of(2, 1))
    await world.until(slot, tokens_of(2, 1), 2)
    assert world.hits(slot, tokens_of(6)) == 0


async def test_without_replay_a_lost_connection_voids_the_view(world: World) -> None:
    """Nobody can say what happened meanwhile."""
    publisher = Publisher(replay=False)
    slot = world.add("w", publisher)
    async with asyncio.timeout(10):
        while not world.hits(slot, tokens_of(6)):
            publisher.prompt(tokens_of(6))
            await asyncio.sleep(0.02)
    publisher.close()
    await world.until(slot, tokens_of(6), 0)


async def test_c8_a_changed_endpoint_is_followed_anew(world: World) -> None:
    """The same worker id with another endpoint: the old publisher is left, its view is gone."""
    first, second = Publisher(), Publisher()
    first.prompt(tokens_of(4))
    second.prompt(tokens_of(4, 1))
    slot = world.add("w", first, source="etcd")
    await world.until(slot, tokens_of(4), 4)
    newer = world.add("w", second, source="etcd")
    assert newer is not slot
    await world.until(newer, tokens_of(4, 1), 4)
    assert world.hits(newer, tokens_of(4)) == 0


async def test_s65_another_page_size_than_registered_is_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """What the engine does counts; the difference is one warning, however many events follow."""
    publisher = Publisher()
    slot = world.add("w", publisher, kv_block_size=SIZE * 2)
    world.feed.sync()
    for blocks in (2, 3, 4):
        publisher.prompt(tokens_of(blocks, salt=blocks))
        await world.until(slot, tokens_of(blocks, salt=blocks), blocks)
    told = [record.getMessage() for record in caplog.records if "announces blocks of" in record.getMessage()]
    assert len(told) == 1
    assert world.feed.counters["w"].sizes == 1
    assert f"of {SIZE} tokens and is registered with {SIZE * 2}" in told[0]


async def test_one_silent_publisher_harms_nobody(world: World, noise: Noise) -> None:
    """An address where nobody listens, and one that speaks rubbish, do not delay the third."""
    world.add("nobody", None, kv_events_endpoint="tcp://127.0.0.1:9", kv_replay_endpoint="tcp://127.0.0.1:9")
    world.add("noisy", None, kv_events_endpoint=noise.endpoint, port=2)
    publisher = Publisher()
    publisher.prompt(tokens_of(4))
    slot = world.add("w", publisher, port=3)
    await world.until(slot, tokens_of(4), 4)
    await noise.heard()
    noise.payload(b"\xc1 this is no batch")
    noise.say(b"a", b"b", b"c", b"d")
    async with asyncio.timeout(10):
        while world.feed.counters["noisy"].malformed < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    publisher.prompt(tokens_of(2, 1))
    await world.until(slot, tokens_of(2, 1), 2)


async def test_an_engine_is_asked_where_it_publishes(world: World) -> None:
    """Without an endpoint in the record, vLLM's own list and its page size count."""
    publisher = Publisher()
    publisher.prompt(tokens_of(3))
    address = publisher.address
    world.answers["w", "/kv_event_sources"] = (
        b'{"0":{"publisher":"zmq","endpoint":"%s","replay_endpoint":"%s"}}'
        % (address["endpoint"].encode(), address["replay_endpoint"].encode())
    )
    world.answers["w", "/metrics"] = b'vllm:cache_config_info{block_size="16"} 1\n'
    slot = world.add("w", None)
    await world.until(slot, tokens_of(3), 3)
    assert slot.unit == 16


async def test_an_engine_that_does_not_say_is_asked_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may still be loading; what it says later is followed."""
    monkeypatch.setattr(feed_module, "ASK_FIRST", 0.02)
    publisher = Publisher()
    publisher.prompt(tokens_of(3))
    slot = world.add("w", None)
    async with asyncio.timeout(10):
        while len(world.asked) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    world.answers["w", "/kv_event_sources"] = (
        b'{"0":{"publisher":"zmq","endpoint":"%s","replay_endpoint":"%s"}}'
        % (publisher.address["endpoint"].encode(), publisher.address["replay_endpoint"].encode())
    )
    await world.until(slot, tokens_of(3), 3)


async def test_r080_a_worker_that_never_speaks_is_told_of(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """After fifty requests without an event one warning names the transport; the counter is there, at zero."""
    world.add("w", None)
    world.feed.sync()
    member = world.registry.member("w")
    assert member is not None
    assert world.feed.counters["w"].events == 0
    ledger = world.registry._ledger
    with caplog.at_level(logging.WARNING, "infera.kv"):
        for _ in range(50):
            ledger.reserve(member.worker).settle(0.0)
            world.feed.tick(0.0)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert "no events received over zmq" in warnings[0]


@pytest.mark.parametrize(("listens", "says"), [(True, "Does the engine publish"), (False, "has a *")])
async def test_an_engine_that_connects_instead_of_listening_is_told_of(
    world: World, caplog: pytest.LogCaptureFixture, listens: bool, says: str
) -> None:
    """vLLM connects to an address without a `*`; then nobody is there, and the warning says what to write."""
    publisher = Publisher(replay=False)
    if not listens:
        publisher.close()
    world.add("w", publisher)
    world.feed.sync()
    followed = next(iter(world.feed._followed.values()))
    async with asyncio.timeout(10):
        while not followed.publishers or followed.publishers[0].connected != listens:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for _ in range(50):
        world.registry._ledger.reserve(followed.member.worker).settle(0.0)
    world.feed.tick(0.0)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert says in line


async def test_a_worker_that_was_unwell_is_followed_from_the_beginning(world: World) -> None:
    """When it is ready again everything is asked for once more."""
    publisher = Publisher()
    publisher.prompt(tokens_of(3))
    slot = world.add("w", publisher)
    await world.until(slot, tokens_of(3), 3)
    world.bus.emit(WorkerChanged("w", "ready"))
    async with asyncio.timeout(10):
        while world.feed.counters["w"].replays < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    await world.until(slot, tokens_of(3), 3)


async def test_a_flood_of_events_leaves_the_loop_its_turns(world: World) -> None:
    """While fifty thousand blocks arrive, nobody waits for long."""
    publisher = Publisher(steps=10_000)
    for salt in range(50):
        publisher.prompt(tokens_of(1000, salt))
    slot = world.add("w", publisher)
    loop = asyncio.get_running_loop()
    worst = 0.0
    async with asyncio.timeout(30):
        while world.hits(slot, tokens_of(1000, 49)) < 1000:
            before = loop.time()
            await asyncio.sleep(0)
            worst = max(worst, loop.time() - before)
    assert len(slot) == 50_000
    assert worst < 0.25
