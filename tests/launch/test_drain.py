"""Waiting until an engine is done (infera-wire §9.2; S10, S13, S14, S19)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from infera_cli.launch.drain import drained
from tests.fleet.virtual_time import VirtualTime


def page(running: int, waiting: int | None = 0) -> bytes:
    more = "" if waiting is None else f"vllm:num_requests_waiting {waiting}.0\n"
    return f"vllm:num_requests_running {running}.0\n{more}".encode()


async def drain(read: Callable[[float], bytes], within: float = 30.0) -> tuple[bool, float]:
    """Whether it was done, and after how many seconds; `read` gets the time."""
    time = VirtualTime()

    async def look() -> bytes:
        return read(time.now)

    task = asyncio.ensure_future(drained(look, within=within, clock=time, sleep=time.sleep))
    await time.settle()
    while not task.done():
        await time.advance(0.25)
    return task.result(), time.now


async def test_s10_open_requests_are_waited_for() -> None:
    """Until they are through, and six quiet seconds more."""
    done, after = await drain(lambda now: page(2 if now < 10 else 0))
    assert done
    assert 16.0 <= after <= 17.0


async def test_s13_one_stale_zero_does_not_end_it() -> None:
    """The six seconds are on end."""
    done, after = await drain(lambda now: page(0 if now < 3 else 1 if now < 8 else 0))
    assert done
    assert after >= 14.0


async def test_s19_there_is_one_deadline(caplog: pytest.LogCaptureFixture) -> None:
    """It counts from the beginning, whatever happens meanwhile; that requests are cut off is said."""
    done, after = await drain(lambda now: page(1), within=12.0)
    assert not done
    assert 11.0 <= after <= 12.5
    assert caplog.messages[-1] == "the engine still has 1 requests, or had lately, when it is stopped"


async def test_waiting_requests_count_too() -> None:
    """A queue is work as well."""
    done, _ = await drain(lambda now: page(0, 3), within=10.0)
    assert not done


async def test_s14_without_any_gauge_nobody_waits(caplog: pytest.LogCaptureFixture) -> None:
    """Unreadable, or of an unknown engine: a warning, and on."""

    def refuse(_now: float) -> bytes:
        raise ConnectionError("refused")

    for read in (refuse, lambda _now: b"process_cpu_seconds_total 1\n"):
        assert await drain(read) == (False, 0.0)
    assert len([line for line in caplog.messages if "without waiting" in line]) == 2


async def test_s14_a_missing_gauge_is_warned_about_and_the_others_used(caplog: pytest.LogCaptureFixture) -> None:
    """Once."""
    with caplog.at_level(logging.WARNING):
        done, _ = await drain(lambda now: page(0, None))
    assert done
    assert [line for line in caplog.messages if "lack" in line] == [
        "the engine's metrics lack vllm:num_requests_waiting; requests are counted without"
    ]


async def test_an_engine_that_dies_meanwhile_is_not_waited_for() -> None:
    """Its page is gone for good after some tries."""

    def read(now: float) -> bytes:
        if now > 2:
            raise ConnectionError("refused")
        return page(1)

    done, after = await drain(read)
    assert not done
    assert after < 10
