"""Replacing a dead replica, rule by rule, on a clock turned by hand (replica-router §1.7 rules 1–9)."""

from __future__ import annotations

import asyncio

import pytest

from infera_cli.launch.replacement import Rules, may_replace
from tests.launch.worlds import REFUSED, World


async def test_a_dead_replica_is_replaced_after_its_dwell_on_the_same_slot() -> None:
    """Nothing happens before --replace-after; then old out, new in, the slot never free between."""
    world = World(replace_after=30.0)
    world.supervisor.begin()
    await world.serving()
    world.processes.end_takes = 2.0
    world.die()
    await world.time.advance(29)
    assert world.processes.ends == []
    await world.time.advance(3)
    assert world.phase() == "replacing"
    assert world.pool.owned == 1
    await world.time.advance(2)
    assert [slot for _, slot in world.processes.starts] == ["x-d0", "x-d0"]
    assert world.phase() == "loading"
    world.table.ready.add("x-d0")
    await world.time.advance(2)
    assert world.phase() == "serving"
    world.supervisor.abandon()


async def test_a_success_within_the_dwell_resets_it() -> None:
    """A replica that comes back in time is left alone, and its next absence counts from its own beginning."""
    world = World(replace_after=30.0)
    world.supervisor.begin()
    await world.serving()
    world.die()
    await world.time.advance(25)
    world.table.ready.add("x-d0")
    await world.time.advance(5)
    world.die()
    await world.time.advance(25)
    assert world.processes.ends == []
    world.supervisor.abandon()


def test_the_dwell_is_never_shorter_than_two_health_intervals() -> None:
    """A shorter one could not see a recovery."""
    assert Rules(replace_after=1.0, health_interval=5.0).dwell == 10.0
    assert Rules(replace_after=30.0, health_interval=5.0).dwell == 30.0


async def test_a_replica_that_was_never_ready_belongs_to_the_launch_timeout() -> None:
    """It is stopped at the time-out, and not replaced."""
    world = World(replace_after=10.0, launch_timeout=60.0)
    world.supervisor.begin()
    await world.supervisor.launch("x-d0")
    await world.time.advance(59)
    assert world.phase() == "loading"
    await world.time.advance(3)
    assert (world.phase(), len(world.processes.starts)) == ("free", 1)
    world.supervisor.abandon()


async def test_a_draining_replica_is_exempt() -> None:
    """Who drains it has plans of their own."""
    world = World(replace_after=10.0)
    world.supervisor.begin()
    await world.serving()
    world.table.draining.add("x-d0")
    world.die()
    await world.time.advance(100)
    assert world.processes.ends == []
    world.supervisor.abandon()


async def test_no_replace_dead_leaves_it_and_its_slot_where_they_are() -> None:
    """The slot stays taken, and the replica returns if it recovers."""
    world = World(replace_after=10.0, replace_dead=False)
    world.supervisor.begin()
    await world.serving()
    world.die()
    await world.time.advance(1000)
    assert (world.processes.ends, world.pool.owned, world.phase()) == ([], 1, "serving")
    world.supervisor.abandon()


async def test_a_launch_command_that_fails_is_tried_five_times_ever_later_then_the_slot_is_freed() -> None:
    """After the dwell times two, four, eight, sixteen; then free, with the reason."""
    world = World(replace_after=30.0)
    world.supervisor.begin()
    await world.serving()
    world.processes.faults = [REFUSED] * 5
    world.die()
    await world.time.advance(32)
    begun = world.processes.starts[1][0]
    await world.time.advance(2000)
    assert [round(when - begun) for when, _ in world.processes.starts[1:]] == [0, 60, 180, 420, 900]
    assert world.phase() == "free"
    seat = world.pool.seat("x-d0")
    assert seat is not None
    assert "could not be launched again" in (seat.error or "")
    world.supervisor.abandon()


def test_pauses_between_tries_are_at_most_ten_minutes() -> None:
    """A long dwell does not make them longer."""
    assert list(Rules(replace_after=400.0).pauses()) == [600.0] * 4


async def test_a_replacement_that_never_gets_ready_is_stopped_and_not_tried_again() -> None:
    """As any launch that times out."""
    world = World(replace_after=30.0, launch_timeout=100.0)
    world.supervisor.begin()
    await world.serving()
    world.die()
    await world.time.advance(1000)
    assert (world.phase(), len(world.processes.starts)) == ("free", 2)
    world.supervisor.abandon()


async def test_a_slot_is_replaced_three_times_an_hour_and_then_left_stopped() -> None:
    """The fourth death within an hour frees the slot; an hour later the count starts anew."""
    world = World(replace_after=30.0)
    world.supervisor.begin()
    await world.serving()
    for _ in range(4):
        world.die()
        await world.time.advance(33)
        world.table.ready.add("x-d0")
        await world.time.advance(5)
    assert (world.phase(), len(world.processes.starts)) == ("free", 4)
    assert may_replace([0.0, 10.0, 20.0], 3601.0)
    assert not may_replace([0.0, 10.0, 20.0], 3599.0)
    world.supervisor.abandon()


async def test_a_delete_during_a_replacement_cancels_the_relaunch() -> None:
    """The slot is free afterwards, and nothing more is launched on it."""
    world = World(replace_after=30.0)
    world.supervisor.begin()
    await world.serving()
    world.processes.faults = [REFUSED]
    world.die()
    await world.time.advance(40)
    assert world.phase() == "replacing"
    await world.supervisor.stop("x-d0")
    await world.time.advance(1000)
    assert (world.phase(), len(world.processes.starts)) == ("free", 2)
    world.supervisor.abandon()


async def test_what_cannot_be_ended_is_not_launched_over() -> None:
    """Retiring left something behind: named, and the slot is used last."""
    world = World(replace_after=30.0)
    world.supervisor.begin()
    await world.serving()
    world.processes.left = "process 4711 on local does not end"
    assert await world.supervisor.stop("x-d0") == "process 4711 on local does not end"
    assert [seat.name for seat in world.pool.free] == ["x-d1", "x-d0"]
    world.supervisor.abandon()


@pytest.mark.parametrize("timeout", [0.4, 3.0, 600.0])
async def test_a14_a_launch_timeout_is_honoured_and_not_rounded_up(timeout: float) -> None:
    """Stopped within a quarter of it, or a second, after it is over."""
    world = World(launch_timeout=timeout)
    await world.supervisor.launch("x-d0")
    await world.time.advance(timeout + min(1.0, timeout / 4))
    assert [round(when, 3) for when, _ in world.processes.ends] == [timeout]


async def test_a_drain_that_takes_too_long_is_ended_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """After --drain-timeout the replica is stopped all the same."""
    world = World(drain_timeout=300.0)
    await world.serving()
    world.table.open["x-d0"] = 2
    stop = asyncio.ensure_future(world.supervisor.stop("x-d0"))
    await world.time.advance(299)
    assert world.processes.ends == []
    await world.time.advance(2)
    assert await stop is None
    assert "stopped with 2 open requests" in caplog.text


async def test_draining_a_replica_that_loads_ends_at_once() -> None:
    """It has no requests, whatever the table says."""
    world = World()
    await world.supervisor.launch("x-d0")
    world.table.open["x-d0"] = 5
    assert await world.supervisor.stop("x-d0") is None
    assert world.phase() == "free"


async def test_a26_whatever_goes_wrong_in_a_launch_the_slot_is_free_again() -> None:
    """An expected fault, and one that nobody foresaw."""
    world = World()
    world.processes.faults = [REFUSED]
    with pytest.raises(type(REFUSED)):
        await world.supervisor.launch()
    assert world.pool.owned == 0

    async def unforeseen(launch: object, nonce: str) -> None:
        raise KeyError("brace")

    world.processes.start = unforeseen  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyError):
        await world.supervisor.launch()
    assert world.pool.owned == 0
