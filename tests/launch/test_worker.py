"""A registered worker's life, with a real etcd and real processes (infera-wire §9; S7, S10, S64; C5)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from infera_cli.errors import ConfigError, InferaError
from infera_cli.fleet.etcd_access import EtcdAccess
from infera_cli.launch.dialects import dialect
from infera_cli.launch.ports import free_ports
from infera_cli.launch.sim import SimEngines
from infera_cli.launch.worker import Launched, Plan, Timing
from tests.fleet.etcd_worlds import PREFIX, b64, eventually
from tests.support.etcd import Etcd

QUICK = Timing(ready_within=20, ready_poll=0.05, drain=15, quiet=0.6, lease=3)
INFERA = (sys.executable, "-c", "import sys; from infera_cli.cli import main; sys.exit(main())")


def records(server: Etcd) -> dict[str, dict[str, Any]]:
    """What etcd holds, by worker."""
    found = server.call("kv/range", {"key": b64(PREFIX), "range_end": b64(PREFIX[:-1] + "0")}).get("kvs", [])
    assert isinstance(found, list)
    return {
        b64decode(kv["key"]).decode().removeprefix(PREFIX): json.loads(b64decode(kv["value"])) for kv in found
    }


def plan(*args: str, timing: Timing = QUICK) -> Plan:
    speaks, port = dialect("sim"), free_ports(1)
    return Plan(
        dialect=speaks, args=args, command=speaks.command(args, python=sys.executable, port=port),
        environment=os.environ, url=f"http://127.0.0.1:{port}", public_url=f"http://127.0.0.1:{port}",
        public_host="127.0.0.1", worker_id=f"127.0.0.1:{port}", registered=True, kv=None, wants_kv=True,
        timing=timing,
    )  # fmt: skip


def launched(made: Plan, server: Etcd) -> Launched:
    return Launched(made, EtcdAccess(endpoints=(server.url,), timeout=1.0), PREFIX)


@asynccontextmanager
async def living(made: Plan, server: Etcd) -> AsyncIterator[tuple[Launched, asyncio.Task[int]]]:
    """A worker that is registered; it is gone afterwards, whatever happened."""
    worker = launched(made, server)
    task = asyncio.ensure_future(worker.run())
    try:
        waiting = asyncio.ensure_future(worker.enrolled.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED, timeout=20)
        waiting.cancel()
        assert worker.enrolled.is_set()
        yield worker, task
    finally:
        worker.stop()
        worker.stop()
        await asyncio.gather(task, return_exceptions=True)


async def generate(url: str, tokens: int) -> httpx.Response:
    ask = {"model": "sim", "prompt": "hello", "max_tokens": tokens, "ignore_eos": True}
    async with httpx.AsyncClient(timeout=30) as http:
        return await http.post(f"{url}/v1/completions", json=ask)


async def busy(url: str) -> None:
    """Until the engine runs a request."""
    await eventually(lambda: b'num_requests_running{engine="0",model_name="sim"} 1.0' in _page(url))


def _page(url: str) -> bytes:
    return httpx.get(f"{url}/metrics").content


async def test_a_ready_engine_is_registered(etcd: Etcd) -> None:
    """Under its address, with what it really uses: the block size comes from its metrics (S64)."""
    made = plan("--block-size", "48")
    async with living(made, etcd):
        assert records(etcd)[made.worker_id] == {
            "worker_id": made.worker_id, "url": made.public_url, "model_name": "sim", "engine": "vllm",
            "infera_engine": "sim", "disagg_mode": "mixed", "disagg_meta": {}, "kv_events_endpoint": None,
            "kv_block_size": 48, "dp_rank": None, "dp_size": None, "request_transport": "http",
        }  # fmt: skip


async def test_s7_s10_it_leaves_discovery_first_and_finishes_what_it_has(etcd: Etcd) -> None:
    """Told to stop in mid-answer: its record is gone while it still answers, and the answer is whole."""
    made = plan("--itl-ms", "20")
    async with living(made, etcd) as (worker, task):
        asked = asyncio.ensure_future(generate(made.url, 100))
        await busy(made.url)
        worker.stop()
        await eventually(lambda: records(etcd) == {})
        assert not asked.done()
        assert (await asked).json()["usage"]["completion_tokens"] == 100
        assert await asyncio.wait_for(task, 10) == 0


async def test_s8_it_stops_although_etcd_does_not_let_it_go(etcd: Etcd, caplog: pytest.LogCaptureFixture) -> None:
    """A refused revoke is an error in the log; the engine ends all the same, with what it has finished."""
    made = plan("--itl-ms", "20", timing=replace(QUICK, lease=60))
    async with living(made, etcd) as (worker, task):
        asked = asyncio.ensure_future(generate(made.url, 100))
        await busy(made.url)
        etcd.refuse_strangers()
        worker.stop()
        assert (await asked).json()["usage"]["completion_tokens"] == 100
        assert await asyncio.wait_for(task, 10) == 0
        with pytest.raises(httpx.ConnectError):
            _page(made.url)
    assert any("could not be taken out of discovery: etcd refuses" in line for line in caplog.messages)


async def test_told_twice_it_does_not_wait(etcd: Etcd) -> None:
    """The second signal ends the drain."""
    made = plan("--itl-ms", "50")
    async with living(made, etcd) as (worker, task):
        asked = asyncio.ensure_future(generate(made.url, 1000))
        await busy(made.url)
        worker.stop()
        await eventually(lambda: records(etcd) == {})
        worker.stop()
        assert await asyncio.wait_for(task, 5) == 0
        assert (await asked).json()["usage"]["completion_tokens"] < 1000


async def test_without_a_drain_limit_it_stops_at_once(etcd: Etcd) -> None:
    """0 means not to wait."""
    async with living(plan(timing=replace(QUICK, drain=0, quiet=60)), etcd) as (worker, task):
        worker.stop()
        assert await asyncio.wait_for(task, 5) == 0


async def test_an_engine_that_ends_takes_its_record_with_it(etcd: Etcd) -> None:
    """At once, not when the lease ends; the exit status is 1."""
    made = plan(timing=replace(QUICK, lease=60))
    async with living(made, etcd) as (_, task):
        [engine] = [child for child in psutil.Process().children() if made.url.rpartition(":")[2] in child.cmdline()]
        engine.kill()
        assert await asyncio.wait_for(task, 10) == 1
        assert records(etcd) == {}


async def test_etcd_may_be_down_while_it_starts_and_come_back_empty(etcd: Etcd) -> None:
    """It registers when there is something to register in, and again when that forgot it (C5)."""
    etcd.stop()
    made = plan()
    worker = launched(made, etcd)
    task = asyncio.ensure_future(worker.run())
    etcd.start()
    await asyncio.wait_for(worker.enrolled.wait(), 20)
    etcd.kill()
    etcd.wipe()
    etcd.start()
    await eventually(lambda: list(records(etcd)) == [made.worker_id])
    worker.stop()
    assert await asyncio.wait_for(task, 10) == 0


async def test_a_stop_while_the_engine_loads_is_obeyed(etcd: Etcd) -> None:
    """Nothing was registered, so there is nothing to wait for."""
    made = plan("--load-seconds", "60")
    worker = launched(made, etcd)
    task = asyncio.ensure_future(worker.run())
    asyncio.get_running_loop().call_later(0.5, worker.stop)
    assert await asyncio.wait_for(task, 10) == 0
    assert records(etcd) == {}


async def test_an_engine_that_does_not_become_ready_is_ended(etcd: Etcd) -> None:
    """With the limit and its flag in one sentence."""
    made = plan("--load-seconds", "60", timing=replace(QUICK, ready_within=0.5))
    with pytest.raises(InferaError, match=r"was not ready within 0.5 s; see --engine-ready-timeout"):
        await launched(made, etcd).run()
    assert not [child for child in psutil.Process().children() if child.is_running() and "simengine" in child.name()]


async def test_an_engine_that_ends_while_loading_is_told(etcd: Etcd) -> None:
    """A wrong flag of the engine's, say."""
    with pytest.raises(InferaError, match="the engine ended with exit code 2 before it was ready"):
        await launched(plan("--no-such-flag"), etcd).run()


async def test_a_program_that_is_not_there_is_told(etcd: Etcd) -> None:
    """With the flag that names another."""
    made = replace(plan(), command=["/no/such/python", "-m", "x"])
    with pytest.raises(ConfigError, match=r"/no/such/python cannot be started.*--engine-python"):
        await launched(made, etcd).run()


async def test_an_engine_of_somebody_else_is_registered_and_left_alone(etcd: Etcd) -> None:
    """`--no-engine --url`: its model is asked for; it runs on when its record is gone."""
    async with SimEngines() as engines:
        [engine] = await engines.start(1, options={"served-model-name": "theirs"})
        made = replace(plan(), command=[], dialect=dialect("vllm"), url=engine.url, public_url=engine.url)
        async with living(made, etcd) as (worker, task):
            [record] = records(etcd).values()
            assert (record["model_name"], record["engine"]) == ("theirs", "vllm")
            worker.stop()
            assert await asyncio.wait_for(task, 10) == 0
        assert records(etcd) == {}
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{engine.url}/health")).status_code == 200


async def test_the_whole_command(etcd: Etcd, tmp_path: Path) -> None:
    """`infera launch sim`: registered, and on SIGTERM gone from etcd, engine and all, with exit status 0."""
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *INFERA, "launch", "sim", "--etcd-endpoint", etcd.address, "--drain-timeout", "0", "--time-scale", "9",
            stdout=log, stderr=log, cwd=tmp_path,
        )  # fmt: skip
    try:
        await eventually(lambda: len(records(etcd)) == 1, within=20)
        [record] = records(etcd).values()
        assert record["kv_events_endpoint"].startswith("tcp://127.0.0.1:")
        engines = psutil.Process(process.pid).children()
        assert [os.getpgid(engine.pid) for engine in engines] == [engine.pid for engine in engines]
        assert (await generate(record["url"], 3)).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 15) == 0
        assert records(etcd) == {}
        assert not any(engine.is_running() for engine in engines)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_record_that_routers_would_refuse_is_not_written(etcd: Etcd) -> None:
    """The worker ends with the reason, and so does its engine."""
    with pytest.raises(InferaError, match='routers would refuse this worker: its record has a "model_name" of over'):
        await asyncio.wait_for(launched(plan("--served-model-name", "m" * 2000), etcd).run(), 20)
    assert records(etcd) == {}


async def test_killed_without_a_word_it_goes_when_its_lease_ends(etcd: Etcd, tmp_path: Path) -> None:
    """kill -9 of launcher and engine: no record is left after the lease time."""
    process = await asyncio.create_subprocess_exec(
        *INFERA, "launch", "sim", "--etcd-endpoint", etcd.address, "--lease-time", "2",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, cwd=tmp_path,
    )  # fmt: skip
    await eventually(lambda: len(records(etcd)) == 1, within=20)
    for engine in psutil.Process(process.pid).children():
        engine.kill()
    process.kill()
    await process.wait()
    await eventually(lambda: records(etcd) == {}, within=10)
