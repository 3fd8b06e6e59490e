"""A launcher that is told to stop stops its engine and ends well, however often and by whichever signal it is told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from tests.fleet.etcd_worlds import eventually
from tests.launch.test_worker import INFERA, records
from tests.support.etcd import Etcd


@contextlib.asynccontextmanager
async def running(etcd: Etcd, folder: Path, *before: str) -> AsyncIterator[Process]:
    """`infera launch sim`, whose engine has been started; neither is left."""
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *before, *INFERA, "launch", "sim", "--etcd-endpoint", etcd.address, stdout=log, stderr=log, cwd=folder
        )
    engines: list[psutil.Process] = []
    try:
        await eventually(lambda: len(psutil.Process(process.pid).children()) == 1, within=20)
        engines = psutil.Process(process.pid).children()
        yield process
        assert await asyncio.wait_for(process.wait(), 15) == 0
        assert not any(engine.is_running() for engine in engines)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        for engine in engines:
            if engine.is_running():
                engine.kill()


@pytest.fixture(autouse=True)
def of_a_terminal() -> Iterator[None]:
    """As a terminal starts its programs, however these tests were started: with `nohup` they would hand that on."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT, signal.SIGINT])
async def test_the_end_of_its_terminal_is_a_stop(etcd: Etcd, tmp_path: Path, number: signal.Signals) -> None:
    """Out of discovery, engine off, exit code 0, as after SIGTERM."""
    async with running(etcd, tmp_path) as process:
        await eventually(lambda: len(records(etcd)) == 1, within=20)
        process.send_signal(number)
        await asyncio.wait_for(process.wait(), 15)
        assert records(etcd) == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_told_again_and_again_it_still_ends_well(etcd: Etcd, tmp_path: Path, number: signal.Signals) -> None:
    """Up to its last moment, which is after everything has been put away."""
    async with running(etcd, tmp_path) as process:
        while process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # its own method would reap it for asyncio
                os.kill(process.pid, number)
            await asyncio.sleep(0.002)


async def test_a_launcher_that_outlives_its_terminal_is_let(etcd: Etcd, tmp_path: Path) -> None:
    """With `nohup`, SIGHUP changes nothing."""
    async with running(etcd, tmp_path, "nohup") as process:
        await eventually(lambda: len(records(etcd)) == 1, within=20)
        process.send_signal(signal.SIGHUP)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.wait(), 1)
        assert len(records(etcd)) == 1
        process.terminate()
