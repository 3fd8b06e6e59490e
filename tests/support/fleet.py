"""A server that launches: the real one as a process, in front of stand-in engines on declared devices."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from infera_cli.launch.script import Identity
from tests.support.server import ServerProcess
from tests.support.sshd import free_port

STANDIN = Path(__file__).with_name("pypto_standin")


def port_base(count: int = 8) -> int:
    """A port with `count` free ones behind it."""
    for _ in range(100):
        base = free_port()
        if base + count < 65536 and all(_free(base + offset) for offset in range(count)):
            return base
    raise AssertionError("no row of free ports")


def _free(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def host(folder: Path, **fields: Any) -> dict[str, Any]:
    """A host entry of the stand-in engine: two devices, its log beside the test; `fields` override, env is joined."""
    env = {"PYTHONPATH": str(STANDIN), "STANDIN_RECORD": str(folder / "record-{device}.json"), **fields.pop("env", {})}
    return {
        "name": "x", "devices": [0, 1], "port_base": fields.pop("port_base", None) or port_base(), "model": "/m/tiny",
        "python": sys.executable, "log_dir": str(folder / "logs"), "env": env, **fields,
    }


class FleetServer(ServerProcess):
    """`infera serve --replicas FILE` with these `hosts`; used like ServerProcess."""

    def __init__(self, folder: Path, hosts: list[dict[str, Any]], *flags: str, replicas: Any = (),
                 env: Mapping[str, str] | None = None, **more: Any) -> None:
        brisk = () if "--health-interval" in flags else ("--health-interval", "0.2")
        super().__init__([], folder, *brisk, *flags, env=env, **more)
        self.file.write_text(json.dumps({"hosts": hosts, "replicas": list(replicas)}))

    async def replicas(self) -> dict[str, Any]:
        """GET /replicas."""
        async with httpx.AsyncClient(timeout=10) as client:
            return dict((await client.get(f"{self.url}/replicas")).json())

    async def rows(self) -> dict[str, dict[str, Any]]:
        """The slots by name."""
        return {row["slot"]: row for row in (await self.replicas())["slots"]}

    async def post(self, slot: str | None = None) -> httpx.Response:
        """POST /replicas."""
        async with httpx.AsyncClient(timeout=30) as client:
            return await client.post(f"{self.url}/replicas", params={"slot": slot} if slot else {})

    async def delete(self, name: str) -> httpx.Response:
        """DELETE /replicas/{name}."""
        async with httpx.AsyncClient(timeout=60) as client:
            return await client.delete(f"{self.url}/replicas/{name}")

    async def until(self, slot: str, state: str, within: float = 15) -> dict[str, Any]:
        """Wait until a slot is in a state; the row."""
        import asyncio

        row: dict[str, Any] = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while (row := (await self.rows())[slot])["state"] != state:
                    await asyncio.sleep(0.03)
        assert row.get("state") == state, "\n".join([str(row), *self.log])
        return row


def launched(folder: Path) -> dict[str, Identity]:
    """What runs or ran by the records beside the logs, by slot."""
    found = {}
    for record in folder.rglob("*.run"):
        words = record.read_text().split()
        if len(words) == 5 and words[1].isdigit():
            found[record.stem] = Identity(words[0], int(words[1]), words[2], words[3], int(words[4]))
    return found


def start_time(pid: int) -> str | None:
    """The kernel's start time of a living process; None for none, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def alive(identity: Identity) -> bool:
    """Whether exactly that process runs."""
    return start_time(identity.pid) == identity.start


def carriers(nonce: str) -> list[int]:
    """Every living process of a launch, wherever it is now."""
    wanted = f"INFERA_LAUNCH_ID={nonce}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0") and start_time(int(folder.name)):
                    found.append(int(folder.name))
    return found


@contextlib.contextmanager
def swept(folder: Path) -> Iterator[Path]:
    """The folder of a test; what was launched below it and still runs is killed at the end, by its own identity."""
    try:
        yield folder
    finally:
        for identity in launched(folder).values():
            for pid in carriers(identity.nonce):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
