"""Kill the router, the engines and the SSH server at random, under load: every slot is accounted for in the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.fleet import FleetProcess, host, start_time
from tests.support.sshd import Home, Sshd

FLAGS = ("--initial-replicas", "3", "--replace-after", "1", "--launch-timeout", "15", "--drain-timeout", "2",
         "--shutdown-timeout", "1")  # fmt: skip


def living(folder: Path) -> dict[str, list[int]]:
    """Every engine process that was launched below `folder`, by the id of its launch."""
    mark = f"STANDIN_RECORD={folder}".encode()
    found: dict[str, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "environ").read_bytes().split(b"\0")
            if any(word.startswith(mark) for word in words) and start_time(int(process.name)):
                nonce = next(word for word in words if word.startswith(b"INFERA_LAUNCH_ID="))
                found.setdefault(nonce.partition(b"=")[2].decode(), []).append(int(process.name))
    return found


class Chaos:
    """A fleet on two machines, and what is done to it. All chance comes from `seed`."""

    def __init__(self, folder: Path, seed: int, *, stubborn: bool) -> None:
        self.folder, self.dice = folder, random.Random(seed)
        self.home = Home(folder / "home")
        self.sshd = Sshd(folder / "gpu1", authorized=[self.home.key])
        self.home.alias("gpu1", self.sshd)
        self.home.trust(self.sshd)
        logs = {"log_dir": str(folder / "logs")}
        near = ["--child", "300"] if stubborn else []  # a child that ignores TERM costs each stop its grace
        self.hosts = [host(folder, name="near", serve_args=near, **logs),
                      host(folder, name="far", ssh="gpu1", devices=[2, 3], **logs)]  # fmt: skip
        self.state = folder / "state.json"
        self.server: FleetProcess
        self.told: list[str] = []
        self.answered = 0

    async def start(self) -> None:
        self.server = FleetProcess(self.folder, self.hosts, *FLAGS, "--state-file", str(self.state),
                                   env={"HOME": str(self.home.folder)})  # fmt: skip
        await self.server.__aenter__()

    # ── what is done ─────────────────────────────────────────────────────────────────────────────────
    async def crash_router(self) -> None:
        self.server.signal(signal.SIGKILL)
        await self.server.stop()
        await self.start()

    async def restart_router(self) -> None:
        await self.server.stop(within=15)
        await self.start()

    async def kill_engine(self) -> None:
        if alive := list(living(self.folder).values()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.dice.choice(self.dice.choice(alive)), signal.SIGKILL)

    async def bounce_sshd(self) -> None:
        await asyncio.to_thread(self.sshd.stop)
        await asyncio.sleep(self.dice.uniform(0.0, 0.5))
        await asyncio.to_thread(self.sshd.start)

    async def launch(self) -> None:
        await self.server.post()

    async def stop(self) -> None:
        await self.server.delete(self.dice.choice(["near-d0", "near-d1", "far-d2", "far-d3"]))

    async def act(self) -> None:
        """One of these; what belongs to a server that is killed meanwhile may fail."""
        acts: list[Callable[[], Awaitable[None]]] = [
            self.crash_router, self.restart_router, self.kill_engine, self.kill_engine, self.bounce_sshd,
            self.launch, self.launch, self.stop,
        ]  # fmt: skip
        act = self.dice.choice(acts)
        self.told.append(act.__name__)
        with contextlib.suppress(httpx.HTTPError):
            await act()

    # ── under load ───────────────────────────────────────────────────────────────────────────────────
    async def load(self) -> None:
        async with httpx.AsyncClient(timeout=5) as client:
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    answer = await client.post(f"{self.server.url}/v1/completions", json={"prompt": "a"})
                    self.answered += answer.status_code == 200
                await asyncio.sleep(0.02)

    async def settled(self, within: float = 60) -> dict[str, dict[str, Any]]:
        """Wait until nothing is under way on any slot."""
        deadline = time.monotonic() + within
        while True:
            rows = await self.server.rows()
            if all(row["state"] in ("ready", "free", "unknown") for row in rows.values()):
                return rows
            assert time.monotonic() < deadline, [rows, self.told, self.server.log[-40:]]
            await asyncio.sleep(0.2)


async def rage(folder: Path, seed: int, seconds: float, *, stubborn: bool) -> None:
    """Chaos for so long; then every process belongs to a slot that says so, and stopping leaves nothing."""
    chaos = Chaos(folder, seed, stubborn=stubborn)
    chaos.sshd.start()
    try:
        await chaos.start()
        loading = [asyncio.create_task(chaos.load()) for _ in range(3)]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await chaos.act()
            await asyncio.sleep(chaos.dice.uniform(0.0, 0.8))
        rows = await chaos.settled()
        for task in loading:
            task.cancel()
        await asyncio.gather(*loading, return_exceptions=True)
        recorded = {entry["nonce"]: entry["slot"] for entry in json.loads(chaos.state.read_text())["replicas"]}
        alive = living(folder)
        why = [chaos.told, rows, chaos.server.log[-60:]]
        assert set(alive) <= set(recorded), why
        ready = {slot for slot, row in rows.items() if row["state"] == "ready"}
        assert ready <= {recorded[nonce] for nonce in alive}, why
        assert chaos.answered > 0, why
        await chaos.server.stop(within=20)
        command = [sys.executable, "-m", "infera_cli", "fleet", "down", str(chaos.server.file), "--yes",
                   "--state-file", str(chaos.state)]  # fmt: skip
        down = await asyncio.create_subprocess_exec(*command, env=chaos.home.env)
        assert await down.wait() == 0, why
        assert living(folder) == {}, why
    finally:
        await chaos.server.stop()
        chaos.sshd.stop()
        for pids in living(folder).values():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(110)
async def test_a_short_chaos_leaves_every_slot_accounted_for(folder: Path) -> None:
    """Ten seconds of it, always the same dice."""
    await rage(folder, seed=7, seconds=10, stubborn=False)


@pytest.mark.fuzz
@pytest.mark.timeout(400)
async def test_a_long_chaos_leaves_every_slot_accounted_for(folder: Path) -> None:
    """Two minutes; INFERA_CHAOS_SEED chooses other dice."""
    await rage(folder, seed=int(os.environ.get("INFERA_CHAOS_SEED", "20260101")), seconds=120, stubborn=True)
