"""Scraping engines, and noticing those that stand still (replica-router §2.11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from infera_cli.events import Bus, Event, WorkerChanged
from infera_cli.fleet.member import Member
from infera_cli.fleet.registry import Registry
from infera_cli.fleet.scrape import Scraper
from infera_cli.protocol.engine_metrics import EngineLoad
from infera_cli.routing.catalogue import POLICIES
from infera_cli.routing.pipeline import decide
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import Ask, WorkerSpec
from tests.fleet.virtual_time import VirtualTime


class Reply:
    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body


class World:
    """A registry, engines whose pages a test writes, and a scraper on a clock that it turns."""

    def __init__(self, *engines: str, stall: float = 0.0) -> None:
        self.time = VirtualTime()
        self.bus = Bus()
        self.told: list[tuple[str, str]] = []
        self.bus.subscribe(self._told, WorkerChanged)
        self.registry = Registry(self.bus, pins=Pins(600))
        for at, engine in enumerate(engines):
            self.registry.add(WorkerSpec(id=f"n{at}", host="h", port=at + 1, engine=engine, source="config"))
        self.pages: dict[tuple[str, str], bytes] = {}
        self.asked: list[tuple[float, str, str]] = []
        self.heard: list[tuple[str, EngineLoad, bool]] = []
        self.scraper = Scraper(
            self.registry, self.fetch, self.hear, stall=stall, clock=self.time, sleep=self.time.sleep)

    def _told(self, event: Event) -> None:
        assert isinstance(event, WorkerChanged)
        self.told.append((event.worker, event.what))

    def is_stalled(self) -> bool:
        return self.registry.members()[0].stalled

    async def fetch(self, spec: WorkerSpec, path: str, *, timeout: float) -> Reply:  # noqa: ASYNC109
        assert timeout == 2.0
        self.asked.append((self.time.now, spec.id, path))
        page = self.pages.get((spec.id, path))
        if page is None:
            raise ConnectionRefusedError("nobody there")
        return Reply(200, page)

    def hear(self, member: Member, load: EngineLoad, now: float, restarted: bool) -> None:
        assert now == self.time.now
        self.heard.append((member.id, load, restarted))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.scraper.run())
        await self.time.settle()
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def open_request(self, name: str = "n0") -> Callable[[], None]:
        decision = decide(
            Ask(), self.registry.view(None, self.time.now), POLICIES["least-loaded"], now=0, dice=None, slack=8)  # type: ignore[arg-type]
        assert decision.worker.id == name
        lease = self.registry.reserve(decision, None, self.time.now)
        return lambda: lease.settle(self.time.now)


async def test_every_engine_is_asked_every_five_seconds() -> None:
    """Each on a time of its own within the five seconds, again and again."""
    world = World("vllm", "vllm", "vllm")
    for at in range(3):
        world.pages[f"n{at}", "/metrics"] = b"vllm:kv_cache_usage_perc 0.5\nvllm:num_requests_waiting 2\n"
    async with world.running():
        await world.time.advance(19.9)
    times = {name: [at for at, who, _ in world.asked if who == name] for name in ("n0", "n1", "n2")}
    assert all(len(own) == 4 for own in times.values())
    assert len({own[0] for own in times.values()}) == 3
    assert world.heard[0][1].kv_usage_max == 0.5
    assert world.heard[0][1].waiting == 2


async def test_a_failed_scrape_takes_nobody_out() -> None:
    """Nothing is heard, and the worker stays in rotation."""
    world = World("vllm")
    async with world.running():
        await world.time.advance(60)
    assert world.heard == []
    assert [member.ready for member in world.registry.members()] == [True]


async def test_tgi_says_what_its_batch_may_hold() -> None:
    """tgi_batch_current_max_tokens ÷ max_batch_total_tokens of /info, asked once; unknown without that field."""
    world = World("tgi", "tgi")
    for name in ("n0", "n1"):
        world.pages[name, "/metrics"] = b"tgi_batch_current_max_tokens 3000\ntgi_queue_size 1\n"
    world.pages["n0", "/info"] = b'{"max_batch_total_tokens": 12000}'
    world.pages["n1", "/info"] = b'{"version": "1"}'
    async with world.running():
        await world.time.advance(12)
    usages = {name: load.kv_usage_max for name, load, _ in world.heard}
    assert usages == {"n0": 0.25, "n1": None}
    assert sum(path == "/info" and who == "n0" for _, who, path in world.asked) == 1


async def test_a_restart_is_seen() -> None:
    """Counters that go back, or another start time, mean that what the engine held is gone."""
    world = World("vllm")
    async with world.running():
        pages = [
            b"vllm:generation_tokens_total 50\nprocess_start_time_seconds 1000\n",
            b"vllm:generation_tokens_total 80\nprocess_start_time_seconds 1000\n",
            b"vllm:generation_tokens_total 10\nprocess_start_time_seconds 1000\n",
            b"vllm:generation_tokens_total 20\nprocess_start_time_seconds 2000\n",
        ]
        for page in pages:
            world.pages["n0", "/metrics"] = page
            await world.time.advance(5)
    assert [restarted for _, _, restarted in world.heard][:4] == [False, False, True, True]


async def stalled_world() -> World:
    world = World("vllm", stall=120.0)
    world.pages["n0", "/metrics"] = b"vllm:generation_tokens_total 50\n"
    return world


async def test_a_node_where_nothing_moves_is_stalled() -> None:
    """Open requests, no bytes and no counters for 120 s: no new work; it is told, and back when a counter moves."""
    world = await stalled_world()
    async with world.running():
        await world.time.advance(10)
        world.open_request()
        await world.time.advance(119)
        assert not world.is_stalled()
        await world.time.advance(3)
        member = world.registry.members()[0]
        assert (member.stalled, member.routable, member.ready) == (True, False, True)
        assert world.told[-1] == ("n0", "stalled")
        world.pages["n0", "/metrics"] = b"vllm:generation_tokens_total 51\n"
        await world.time.advance(6)
        assert not world.is_stalled()
        assert member.routable
        assert world.told[-1] == ("n0", "moving")


async def test_bytes_of_an_answer_are_movement() -> None:
    """A stream that moves keeps its node from being stalled, and brings it back."""
    world = await stalled_world()
    async with world.running():
        await world.time.advance(10)
        world.open_request()
        member = world.registry.members()[0]
        await world.time.advance(100)
        world.registry.alive(member.worker, world.time.now)
        await world.time.advance(100)
        assert not world.is_stalled()
        await world.time.advance(21)
        assert world.is_stalled()
        world.registry.alive(member.worker, world.time.now)
        await world.time.advance(1)
        assert not world.is_stalled()


async def test_an_idle_node_is_not_stalled() -> None:
    """Without open requests nothing has to move, however long."""
    world = await stalled_world()
    async with world.running():
        await world.time.advance(1000)
    assert not world.is_stalled()


async def test_a_stalled_node_that_was_left_alone_is_tried_again() -> None:
    """Its requests gave up: after as long a rest it may show that it moves."""
    world = await stalled_world()
    async with world.running():
        await world.time.advance(10)
        done = world.open_request()
        await world.time.advance(125)
        assert world.is_stalled()
        done()
        await world.time.advance(100)
        assert world.is_stalled()
        await world.time.advance(25)
        assert not world.is_stalled()


async def test_an_engine_without_counters_is_never_stalled() -> None:
    """A long unary answer of an engine that tells nothing is no sign of anything."""
    world = World("custom", stall=120.0)
    async with world.running():
        world.open_request()
        await world.time.advance(1000)
    assert not world.is_stalled()


async def test_members_that_leave_are_let_go() -> None:
    """No scrape is begun for who is gone, and those that come are taken up."""
    world = World("vllm")
    async with world.running():
        await world.time.advance(10)
        world.registry.remove("n0")
        before = len(world.asked)
        await world.time.advance(20)
        assert len(world.asked) == before
        world.registry.add(WorkerSpec(id="new", host="h", port=9))
        await world.time.advance(10)
    assert world.asked[-1][1] == "new"


