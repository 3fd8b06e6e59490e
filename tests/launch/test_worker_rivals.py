"""Two launchers of one worker, with a real etcd and the real command (infera-wire §1.4, §9)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psutil

from infera_cli.launch.ports import free_ports
from infera_cli.launch.sim import SimEngines
from tests.fleet.etcd_worlds import eventually
from tests.launch.test_worker import INFERA, records
from tests.support.etcd import Etcd


@asynccontextmanager
async def command(log: Path, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`infera launch …`; killed afterwards with what it started, if it still runs."""
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *INFERA, "launch", *words, stdout=out, stderr=out, cwd=log.parent
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            await killed(process)


async def killed(process: asyncio.subprocess.Process) -> None:
    """-9, engine and launcher."""
    for engine in psutil.Process(process.pid).children():
        engine.kill()
    process.kill()
    await process.wait()


async def test_a_taken_port_is_refused_and_its_worker_stays(etcd: Etcd, tmp_path: Path) -> None:
    """The second `launch` on one port ends with 1 and one sentence; the first one's record is as it was."""
    port = free_ports(1)
    words = ("sim", "--host", "127.0.0.1", "--port", str(port), "--etcd-endpoint", etcd.address, "--lease-time", "2",
             "--drain-timeout", "0")  # fmt: skip
    async with command(tmp_path / "one", *words) as first:
        await eventually(lambda: list(records(etcd)) == [f"127.0.0.1:{port}"], within=20)
        async with command(tmp_path / "two", *words) as second:
            assert await asyncio.wait_for(second.wait(), 20) == 1
        assert f"something else listens on 127.0.0.1:{port}" in (tmp_path / "two").read_text()
        assert list(records(etcd)) == [f"127.0.0.1:{port}"]
        first.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(first.wait(), 15) == 0


async def test_one_engine_is_registered_by_one_launcher(etcd: Etcd, tmp_path: Path) -> None:
    """`--no-engine --url` twice: the second ends with 1 after a lease time, and the record is the first one's still."""
    async with SimEngines() as engines:
        [engine] = await engines.start(1)
        words = ("vllm", "--no-engine", "--url", engine.url, "--etcd-endpoint", etcd.address, "--lease-time", "2",
                 "--drain-timeout", "0")  # fmt: skip
        async with command(tmp_path / "one", *words):
            await eventually(lambda: len(records(etcd)) == 1, within=20)
            async with command(tmp_path / "two", *words) as second:
                assert await asyncio.wait_for(second.wait(), 30) == 1
            said = (tmp_path / "two").read_text()
            assert "is enrolled already, on a lease that is not ours" in said
            assert "another launcher keeps" in said
            assert "Traceback" not in said
            assert len(records(etcd)) == 1
        assert httpx.get(f"{engine.url}/health").status_code == 200


async def test_after_kill_9_it_comes_back_when_the_old_lease_ends(etcd: Etcd, tmp_path: Path) -> None:
    """The same command again, at once: it waits, and is in discovery by itself."""
    port = free_ports(1)
    words = ("sim", "--host", "127.0.0.1", "--port", str(port), "--etcd-endpoint", etcd.address, "--lease-time", "4",
             "--drain-timeout", "0")  # fmt: skip
    async with command(tmp_path / "one", *words) as first:
        await eventually(lambda: len(records(etcd)) == 1, within=20)
        await killed(first)
        async with command(tmp_path / "two", *words) as second:
            await eventually(lambda: "enrolled as " in (tmp_path / "two").read_text(), within=25)
            assert list(records(etcd)) == [f"127.0.0.1:{port}"]
            second.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(second.wait(), 15) == 0
    assert records(etcd) == {}


async def test_a_wrong_password_stops_a_launch(etcd: Etcd, tmp_path: Path) -> None:
    """With the sentence that `serve` has for it, and no engine left."""
    etcd.refuse_strangers()
    words = ("sim", "--host", "127.0.0.1", "--etcd-endpoint", etcd.address, "--etcd-user", "root",
             "--etcd-password", "wrong", "--drain-timeout", "0")  # fmt: skip
    async with command(tmp_path / "one", *words) as only:
        assert await asyncio.wait_for(only.wait(), 30) == 1
    said = (tmp_path / "one").read_text()
    assert "etcd refuses: etcdserver: authentication failed" in said
    assert "the heartbeat" not in said
