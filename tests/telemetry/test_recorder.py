"""Finished requests wait for the next flush."""

from __future__ import annotations

import asyncio
import contextlib

from infera_cli.events import Bus, RequestDone, WorkerChanged
from infera_cli.telemetry.recorder import FLUSH_AT, Batch, Recorder
from tests.telemetry.world import done


def test_batches_reach_every_consumer_in_order() -> None:
    """A flush hands on what has gathered, once, and nothing when there is nothing."""
    bus, first, second = Bus(), list[RequestDone](), list[RequestDone]()
    recorder = Recorder(bus, [first.extend])
    recorder.feed(second.extend)
    bus.emit(done(id="r1"))
    bus.emit(WorkerChanged("a", "ready"))
    bus.emit(done(id="r2"))
    assert first == []
    recorder.flush()
    recorder.flush()
    assert [d.id for d in first] == [d.id for d in second] == ["r1", "r2"]


def test_many_requests_do_not_wait_for_the_timer() -> None:
    """A batch never grows beyond its limit, so a flush is short however busy the router is."""
    bus, sizes = Bus(), list[int]()
    Recorder(bus, [lambda batch: sizes.append(len(batch))])
    for _ in range(2 * FLUSH_AT + 1):
        bus.emit(done())
    assert sizes == [FLUSH_AT, FLUSH_AT]


async def test_timer_flushes_and_tells_its_lag_and_cancelling_flushes_once_more() -> None:
    """Nothing is lost at the end."""
    bus, seen, lags = Bus(), list[str](), list[float]()
    arrived = asyncio.Event()

    def take(batch: Batch) -> None:
        seen.extend(d.id for d in batch)
        arrived.set()

    recorder = Recorder(bus, [take])
    task = asyncio.create_task(recorder.run(lags.append))
    bus.emit(done(id="r1"))
    await asyncio.wait_for(arrived.wait(), 10)
    bus.emit(done(id="r2"))
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert seen == ["r1", "r2"]
    assert all(lag >= 0 for lag in lags)
    assert lags
