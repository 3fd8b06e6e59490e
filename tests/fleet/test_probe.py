"""Probing: schedules, strikes, moving streams, model lists (replica-router §1.7; rulings 9, 12)."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from types import SimpleNamespace

import pytest

from infera_cli.events import Bus, Event, WorkerChanged
from infera_cli.fleet.member import Member
from infera_cli.fleet.probe import Prober, probe_timeout
from infera_cli.fleet.registry import Registry
from infera_cli.routing.health import Score
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import WorkerSpec
from tests.fleet.virtual_time import VirtualTime

MODELS = json.dumps({"object": "list", "data": [{"id": "tiny", "max_model_len": 2048}]}).encode()


class Answer:
    """What a scripted worker says, and after how many seconds."""

    def __init__(
        self, status: int = 200, body: bytes = b"", after: float = 0.0, error: Exception | None = None
    ) -> None:
        self.status = status
        self.body = body
        self.after = after
        self.error = error


class Workers:
    """Scripted workers; keeps who was asked for what, when."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self.asked: list[tuple[float, str, str]] = []
        self.health: dict[str, Answer] = {}
        self.models: dict[str, Answer] = {}

    async def __call__(self, spec: WorkerSpec, path: str, *, timeout: float) -> Answer:  # noqa: ASYNC109
        self.asked.append((self._time.now, spec.id, path))
        table = {"/health": self.health, "/v1/models": self.models}[path]
        answer = table.get(spec.id, Answer(body=MODELS if path == "/v1/models" else b""))
        if answer.after:
            await self._time.sleep(min(answer.after, timeout))
        if answer.after > timeout:
            raise TimeoutError
        if answer.error is not None:
            raise answer.error
        return answer

    def times(self, worker: str, path: str = "/health") -> list[float]:
        return [when for when, who, what in self.asked if (who, what) == (worker, path)]


class World:
    """A registry, its prober, scripted workers and a clock."""

    def __init__(self, count: int) -> None:
        self.time = VirtualTime()
        self.bus = Bus()
        self.events: list[WorkerChanged] = []
        self.bus.subscribe(self._hear)
        self.pins = Pins(600)
        self.registry = Registry(self.bus, pins=self.pins)
        self.workers = Workers(self.time)
        self.prober = Prober(self.registry, self.workers, clock=self.time, sleep=self.time.sleep)
        self.bus.subscribe(self.prober.on_event)
        for number in range(count):
            self.add(f"w{number}")

    def _hear(self, event: Event) -> None:
        if isinstance(event, WorkerChanged):
            self.events.append(event)

    def add(self, name: str, *, ready: bool = True, models: tuple[str, ...] = ()) -> Member:
        spec = WorkerSpec(id=name, host=name, port=1, models=models)
        member = self.registry.add(spec, ready=ready)
        assert member is not None
        return member

    def member(self, name: str = "w0") -> Member:
        member = self.registry.member(name)
        assert member is not None
        return member

    def whats(self, name: str = "w0") -> list[str]:
        return [event.what for event in self.events if event.worker == name]


@pytest.fixture
async def world() -> AsyncIterator[Callable[[int], World]]:
    made: list[World] = []

    def start(count: int) -> World:
        made.append(World(count))
        made[-1].prober.start()
        return made[-1]

    yield start
    for one in made:
        await one.prober.stop()


Start = Callable[[int], World]


async def test_the_first_probe_is_sent_at_once_and_then_every_interval(world: Start) -> None:
    """A lone worker is asked at the start and every five seconds."""
    w = world(1)
    await w.time.advance(20.0)
    assert w.workers.times("w0") == [0.0, 5.0, 10.0, 15.0, 20.0]


async def test_a19_two_failed_probes_in_a_row_take_out_and_one_success_brings_back(world: Start) -> None:
    """One failure changes nothing; the count starts anew with each success."""
    w = world(1)
    await w.time.advance(1.0)
    w.workers.health["w0"] = Answer(503)
    await w.time.advance(5.0)
    assert w.member().ready
    w.workers.health.clear()
    await w.time.advance(5.0)
    w.workers.health["w0"] = Answer(503)
    await w.time.advance(5.0)
    assert w.member().ready
    await w.time.advance(5.0)
    assert not w.member().ready
    w.workers.health.clear()
    await w.time.advance(5.0)
    assert w.member().ready
    assert [what for what in w.whats() if "ready" in what] == ["not_ready", "ready"]


@pytest.mark.parametrize("answer", [
    Answer(503), Answer(204), Answer(301), Answer(404), Answer(401), Answer(error=ConnectionRefusedError()),
    Answer(after=60.0), Answer(error=ConnectionResetError()),
])
async def test_a20_everything_but_200_is_a_failure(world: Start, answer: Answer) -> None:
    """A redirect, another 2xx, a refusal or silence are failed probes."""
    w = world(1)
    w.workers.health["w0"] = answer
    await w.time.advance(16.0)
    assert not w.member().ready


async def test_a_failed_probe_says_why(world: Start) -> None:
    """The event that a worker went out carries the reason."""
    w = world(3)
    w.workers.health = {"w0": Answer(503), "w1": Answer(after=60.0), "w2": Answer(error=OSError("no route"))}
    await w.time.advance(20.0)
    assert {event.worker: event.detail for event in w.events if event.what == "not_ready"} == {
        "w0": "/health answered 503", "w1": "no answer within 5 s", "w2": "no route"}


async def test_a_launched_worker_becomes_ready_by_its_first_good_probe(world: Start) -> None:
    """A worker that was not ready is, once it answers."""
    w = world(0)
    w.workers.health["new"] = Answer(error=ConnectionRefusedError())
    w.add("new", ready=False)
    await w.time.advance(30.0)
    assert not w.member("new").ready
    w.workers.health.clear()
    await w.time.advance(5.0)
    assert w.member("new").ready


async def test_r106_a_worker_whose_streams_move_is_not_failed_by_a_slow_probe(world: Start) -> None:
    """Bytes that arrive while a probe hangs count for more than the probe."""
    w = world(1)
    await w.time.advance(1.0)
    w.workers.health["w0"] = Answer(after=60.0)
    for _ in range(60):
        await w.time.advance(1.0)
        w.registry.alive(w.member().worker, w.time.now)
    assert w.member().ready
    await w.time.advance(20.0)
    assert not w.member().ready


async def test_r106_one_missed_probe_does_not_empty_the_pool(world: Start) -> None:
    """A /health that takes six seconds once leaves the only worker in rotation."""
    w = world(1)
    await w.time.advance(1.0)
    w.workers.health["w0"] = Answer(after=6.0)
    await w.time.advance(8.5)
    w.workers.health.clear()
    await w.time.advance(30.0)
    assert "not_ready" not in w.whats()


async def test_r107_probes_are_gets_of_health_and_models_and_nothing_else(world: Start) -> None:
    """A minute of probing causes no completion."""
    w = world(2)
    await w.time.advance(60.0)
    assert {path for _, _, path in w.workers.asked} == {"/health", "/v1/models"}


async def test_b25_a_slow_probe_of_a_removed_worker_does_not_promote_its_successor(world: Start) -> None:
    """A result belongs to the worker that was probed."""
    w = world(0)
    w.workers.health["x"] = Answer(after=4.0)
    w.add("x", ready=False)
    await w.time.advance(1.0)
    w.registry.remove("x")
    w.workers.health["x"] = Answer(503)
    successor = w.add("x", ready=False)
    await w.time.advance(4.0)
    assert not successor.ready
    assert w.member("x") is successor


async def test_b43_a_hung_probe_delays_nobody_else(world: Start) -> None:
    """Each worker has a schedule of its own."""
    w = world(2)
    w.workers.health["w0"] = Answer(after=60.0)
    await w.time.advance(60.0)
    times = w.workers.times("w1")
    assert {round(later - earlier, 6) for earlier, later in pairwise(times[1:])} == {5.0}
    assert len(times) >= 11


async def test_b44_a_dead_worker_is_out_without_a_second_strike_once_a_request_met_it(world: Start) -> None:
    """The optimistic start costs one request; a good probe brings the worker back."""
    w = world(1)
    w.workers.health["w0"] = Answer(error=ConnectionRefusedError())
    w.registry.score(w.member().worker, Score.UNREACHABLE, w.time.now)
    assert not w.member().ready
    await w.time.advance(10.0)
    w.workers.health.clear()
    await w.time.advance(5.0)
    assert w.member().ready


async def test_workers_that_come_and_go_are_taken_up_and_let_go(world: Start) -> None:
    """A new worker is probed at once, one that left never again."""
    w = world(1)
    await w.time.advance(7.0)
    w.add("late")
    await w.time.advance(0.0)
    assert w.workers.times("late") == [7.0]
    w.registry.remove("late")
    await w.time.advance(20.0)
    assert w.workers.times("late") == [7.0]


async def test_probes_of_many_workers_are_spread_over_the_interval(world: Start) -> None:
    """After the first round no moment has more than its share of the probes."""
    w = world(100)
    await w.time.advance(20.0)
    assert len([when for when, *_ in w.workers.asked if when == 0.0]) == 200
    second = [when for when, _, path in w.workers.asked if 10.0 <= when < 15.0 and path == "/health"]
    per_second = [sum(1 for when in second if int(when) == second_) for second_ in range(10, 15)]
    assert len(second) == 100
    assert max(per_second) <= 25


async def test_an_unforeseen_fault_does_not_end_the_probing(
    world: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a cycle raises is logged, and the next cycle comes."""
    w = world(1)
    w.workers.health["w0"] = Answer(error=RuntimeError("a bug"))
    await w.time.advance(5.0)
    w.workers.health.clear()
    await w.time.advance(10.0)
    assert len(w.workers.times("w0")) == 4
    assert "an unforeseen way" in caplog.text


async def test_b40_a_limit_of_this_machine_is_no_strike(
    world: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """A router without free descriptors does not empty its own pool."""
    w = world(1)
    w.workers.health["w0"] = Answer(error=OSError(errno.EMFILE, "Too many open files"))
    await w.time.advance(30.0)
    assert w.member().ready
    assert "for want of resources here" in caplog.text


async def test_expired_pins_are_swept_each_cycle(world: Start) -> None:
    """Pins go once their time is over, without a request that looks for them."""
    w = world(1)
    w.pins.pin("s", "w0", 0.0)
    await w.time.advance(600.0)
    assert len(w.pins) == 1
    await w.time.advance(10.0)
    assert len(w.pins) == 0


async def test_a_sweep_that_fails_is_not_the_last(
    world: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault while sweeping is logged, and sweeping goes on."""
    w = world(1)
    calls: list[float] = []

    def sweep(now: float) -> int:
        calls.append(now)
        raise RuntimeError("a bug")

    broken = SimpleNamespace(sweep=sweep, members=w.registry.members, probed=print, models_learned=print)
    monkeypatch.setattr(w.prober, "_registry", broken)
    await w.time.advance(10.0)
    assert calls == [5.0, 10.0]
    assert "sweeping" in caplog.text


async def test_stop_ends_everything_also_in_mid_probe(world: Start) -> None:
    """After stop no task of the prober is left and nobody is asked again."""
    w = world(3)
    w.workers.health["w1"] = Answer(after=4.0)
    await w.time.advance(1.0)
    await w.prober.stop()
    assert len(asyncio.all_tasks()) == 1
    asked = len(w.workers.asked)
    w.add("late")
    await w.time.advance(60.0)
    assert len(w.workers.asked) == asked


# ── models ───────────────────────────────────────────────────────────────────────────────────────────
async def test_models_are_learned_at_once_and_again_every_half_minute(world: Start) -> None:
    """What a worker lists is known after its first good probe, and stays up to date (LoRA adapters too)."""
    w = world(1)
    await w.time.advance(0.0)
    assert w.member().models == ("tiny",)
    w.workers.models["w0"] = Answer(body=b'{"data": [{"id": "tiny"}, {"id": "lora", "parent": "tiny"}]}')
    await w.time.advance(30.0)
    assert w.member().models == ("tiny", "lora")
    assert w.workers.times("w0", "/v1/models") == [0.0, 30.0]


async def test_models_are_asked_for_again_when_a_worker_turns_ready(world: Start) -> None:
    """A worker that came back may have come back with another model."""
    w = world(1)
    await w.time.advance(1.0)
    w.workers.health["w0"] = Answer(503)
    await w.time.advance(10.0)
    w.workers.health.clear()
    w.workers.models["w0"] = Answer(body=b'{"data": [{"id": "other"}]}')
    await w.time.advance(5.0)
    assert w.member().models == ("other",)


async def test_unknown_models_are_asked_for_at_each_probe(world: Start) -> None:
    """Until a worker has said once what it serves, every good probe asks."""
    w = world(1)
    w.workers.models["w0"] = Answer(404)
    await w.time.advance(10.0)
    w.workers.models.clear()
    await w.time.advance(5.0)
    assert w.workers.times("w0", "/v1/models") == [0.0, 5.0, 10.0, 15.0]
    assert w.member().models == ("tiny",)


@pytest.mark.parametrize(("answer", "says"), [
    (Answer(500, after=3.0), "answered 500"), (Answer(body=b"<html>"), "no list of models"),
    (Answer(401), "api_key_file"),
    (Answer(body=b'{"data": []}'), "no list of models"), (Answer(after=60.0), "no answer within 5 s"),
    (Answer(error=ConnectionResetError("gone")), "gone"),
])
async def test_r032_an_odd_model_list_keeps_the_old_one_and_is_told_once(
    world: Start, answer: Answer, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker stays in rotation with the models it had; one warning is written, not one per probe."""
    w = world(1)
    await w.time.advance(1.0)
    w.workers.models["w0"] = answer
    with caplog.at_level(logging.WARNING):
        await w.time.advance(200.0)
    assert w.member().models == ("tiny",)
    assert w.member().ready
    assert [says in record.getMessage() for record in caplog.records] == [True]


async def test_declared_models_stay_what_they_are(world: Start) -> None:
    """A declared list comes first, whatever the worker lists (rulings 9)."""
    w = world(0)
    w.add("declared", models=("mine",))
    await w.time.advance(0.0)
    assert w.member("declared").models == ("mine",)


@pytest.mark.parametrize(("connect", "probe"), [(5.0, 5.0), (0.5, 2.0), (30.0, 30.0)])
def test_a_probe_may_take_as_long_as_connecting_but_no_less_than_sglang_needs(
    connect: float, probe: float
) -> None:
    """SGLang's /health never answers within a second (engines.md §2.2)."""
    assert probe_timeout(connect) == probe
