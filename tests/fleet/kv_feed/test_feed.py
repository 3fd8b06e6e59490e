"""Events over real ZeroMQ, from publishers that come, go, restart and fall silent (C8, C25, C26; R080, R085)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

import pytest
import zmq

from infera_cli.blocks import chain
from infera_cli.events import Bus, WorkerChanged
from infera_cli.fleet.kv_feed import feed as feed_module
from infera_cli.fleet.kv_feed.feed import KvFeed
from infera_cli.fleet.kv_feed.intake import Intake
from infera_cli.fleet.registry import Registry
from infera_cli.routing.prefix import PrefixIndex, Slot
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import Worker, WorkerSpec
from infera_cli.simengine.kv_events import KvEvents, KvEventsConfig
from infera_cli.simulator.cache import Removed, Stored

SIZE = 16


class Publisher:
    """A simulated engine's events; `prompt` announces the blocks of one prompt."""

    made: ClassVar[list[Publisher]] = []

    def __init__(self, endpoint: str = "tcp://127.0.0.1:0", *, replay: bool = True, steps: int = 1000,
                 form: str = "map", hashes: str = "int", at: dict[str, str] | None = None) -> None:
        known = at or {}
        config = KvEventsConfig(
            endpoint=known.get("endpoint", endpoint), buffer_steps=steps, form=form, hashes=hashes,
            replay_endpoint=known.get("replay_endpoint", "tcp://127.0.0.1:0") if replay else None,
        )
        self.events = KvEvents(config, SIZE)
        self.address: dict[str, str] = self.events.sources()["0"]
        self.made.append(self)

    def close(self) -> None:
        if self in self.made:
            self.made.remove(self)
            self.events.close()

    def prompt(self, tokens: Sequence[int]) -> None:
        hashes = chain(tokens, SIZE)
        self.events.submitted("s", tokens, "")
        self.events.publish([Stored(tuple(hashes), None, "s", 0)])

    def remove(self, tokens: Sequence[int]) -> None:
        self.events.publish([Removed(hash_) for hash_ in reversed(chain(tokens, SIZE))])


class Reply:
    def __init__(self, body: bytes, status: int = 200) -> None:
        self.body, self.status = body, status


class World:
    """A registry, an index and the feed between; `answers` are what workers say to GET."""

    def __init__(self) -> None:
        self.bus = Bus()
        self.registry = Registry(self.bus, pins=Pins(600))
        self.index = PrefixIndex()
        self.by_worker: dict[Worker, list[Slot]] = {}
        self.answers: dict[tuple[str, str], bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.feed = KvFeed(self.registry, self._fetch, Intake(self.index), self._slots)
        self.bus.subscribe(self.feed.on_event)

    async def _fetch(self, spec: WorkerSpec, path: str, *, timeout: float) -> Reply:  # noqa: ASYNC109
        self.asked.append((spec.id, path))
        body = self.answers.get((spec.id, path))
        return Reply(body, 200) if body is not None else Reply(b"", 404)

    def _slots(self, worker: Worker, count: int | None) -> list[Slot]:
        slots = self.by_worker.setdefault(worker, [])
        while len(slots) < max(1, worker.spec.ranks, count or 1):
            slots.append(self.index.open(f"{worker.id}#dp{len(slots)}" if len(slots) else worker.id))
        return slots

    def add(self, name: str, publisher: Publisher | None, **more: object) -> Slot:
        where = {"kv_events_endpoint": publisher.address["endpoint"],
                 "kv_replay_endpoint": publisher.address["replay_endpoint"]} if publisher else {}
        spec = WorkerSpec(id=name, host="127.0.0.1", engine="vllm", **{"port": 1, **where, **more})  # type: ignore[arg-type]
        member = self.registry.add(spec)
        assert member is not None
        return self._slots(member.worker, None)[0]

    def hits(self, slot: Slot, tokens: Sequence[int]) -> int:
        return dict(self.index.depths(chain(tokens, SIZE), slot.bit)).get(slot.bit, 0)

    async def until(self, slot: Slot, tokens: Sequence[int], wanted: int, within: float = 10) -> None:
        async with asyncio.timeout(within):
            while self.hits(slot, tokens) != wanted:  # noqa: ASYNC110 - the index is no event
                await asyncio.sleep(0.005)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    made.feed.close()
    for publisher in list(Publisher.made):
        publisher.close()


def tokens_of(blocks: int, salt: int = 0) -> list[int]:
    return [salt * 10_000 + number for number in range(blocks * SIZE)]


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
    assert f"of {SIZE} tokens and is registered with {SIZE * 2}" in told[0]


async def test_one_silent_publisher_harms_nobody(world: World) -> None:
    """An address where nobody listens, and one that speaks rubbish, do not delay the third."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    noise = context.socket(zmq.PUB)
    noise.bind("tcp://127.0.0.1:*")
    where = noise.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(where, bytes)
    world.add("nobody", None, kv_events_endpoint="tcp://127.0.0.1:9", kv_replay_endpoint="tcp://127.0.0.1:9")
    world.add("noisy", None, kv_events_endpoint=where.decode().rstrip("\0"), port=2)
    publisher = Publisher()
    publisher.prompt(tokens_of(4))
    slot = world.add("w", publisher, port=3)
    await world.until(slot, tokens_of(4), 4)
    async with asyncio.timeout(10):
        while not world.feed.counters["noisy"].malformed:
            noise.send_multipart([b"kv-events", b"\0" * 8, b"\xc1 this is no batch"])
            noise.send_multipart([b"a", b"b", b"c", b"d"])
            await asyncio.sleep(0.02)
    publisher.prompt(tokens_of(2, 1))
    await world.until(slot, tokens_of(2, 1), 2)
    context.destroy(linger=0)


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
