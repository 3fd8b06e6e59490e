"""Simulated engines as children of ours."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import httpx
import psutil
import pytest

from infera_cli.errors import InferaError
from infera_cli.launch.sim import SimEngines


async def gone(pid: int) -> None:
    """Waits until a process, a child of nobody here, is no more."""
    with contextlib.suppress(psutil.NoSuchProcess):
        await asyncio.to_thread(psutil.Process(pid).wait, 10)


def logs_in(folder: Path) -> str:
    """What all engines wrote."""
    return "".join(log.read_text() for log in folder.iterdir())


async def test_engines_start_together_and_all_answer() -> None:
    """They come back named and in order once all take requests, and none is left afterwards."""
    async with SimEngines() as engines:
        started = await engines.start(3, options={"time-scale": 10, "served-model-name": "m"})
        assert [engine.name for engine in started] == ["sim0", "sim1", "sim2"]
        assert len({engine.port for engine in started}) == 3
        async with httpx.AsyncClient(verify=False) as client:
            answers = [await client.get(f"{engine.url}/v1/models") for engine in started]
        assert [answer.json()["data"][0]["id"] for answer in answers] == ["m", "m", "m"]
        pids = list(engines.pids.values())
        assert all(os.getpgid(pid) == pid for pid in pids)      # a Ctrl-C in the terminal does not reach them
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


async def test_one_can_be_stopped_alone() -> None:
    """Stopping one leaves the others, and stopping again is fine."""
    async with SimEngines() as engines:
        first, second = await engines.start(2)
        await engines.stop("sim0")
        await engines.stop("sim0")
        async with httpx.AsyncClient(verify=False) as client:
            assert (await client.get(f"{second.url}/health")).status_code == 200
            with pytest.raises(httpx.ConnectError):
                await client.get(f"{first.url}/health")
        assert list(engines.pids) == ["sim1"]


async def test_one_that_ignores_term_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that is stopped (SIGSTOP) cannot act on TERM and is killed after the grace time."""
    monkeypatch.setattr("infera_cli.launch.sim._GRACE", 0.1)
    async with SimEngines() as engines:
        await engines.start(1)
        (pid,) = engines.pids.values()
        os.kill(pid, signal.SIGSTOP)
    assert not psutil.pid_exists(pid)


async def test_one_that_cannot_start_is_an_error_and_none_stays(tmp_path: Path) -> None:
    """A bad flag gives one sentence, the log has the reason, and nothing runs on."""
    async with SimEngines(tmp_path) as engines:
        with pytest.raises(InferaError, match="stopped with exit code 2 before it was ready"):
            await engines.start(2, options={"nonsense": True})
        assert engines.pids == {}
    assert "--nonsense" in logs_in(tmp_path)


async def test_waiting_for_readiness_has_a_limit() -> None:
    """Engines that load for too long are stopped, and the sentence says how long was waited."""
    engines = SimEngines()
    with pytest.raises(InferaError, match=r"not ready within 0\.5 s"):
        await engines.start(1, ready_within=0.5, options={"load-seconds": 60})
    assert engines.pids == {}


async def test_they_do_not_outlive_a_parent_that_is_killed() -> None:
    """When their parent dies without a word, they end by themselves."""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c",
        "import asyncio\n"
        "from infera_cli.launch.sim import SimEngines\n"
        "async def main():\n"
        "    engines = SimEngines()\n"
        "    await engines.start(2)\n"
        "    print(*engines.pids.values(), flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n",
        stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    pids = [int(pid) for pid in (await parent.stdout.readline()).split()]
    assert len(pids) == 2
    parent.kill()
    await parent.communicate()
    for pid in pids:
        await gone(pid)
    assert parent.returncode == -signal.SIGKILL
