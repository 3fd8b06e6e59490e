"""A server that launches: the real one as a process, in front of stand-in engines on declared devices."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import httpx

from infera_cli.launch.script import Identity
from tests.support.local import LocalServer
from tests.support.server import ServerProcess

STANDIN = Path(__file__).with_name("pypto_standin")


def port_base(count: int = 10) -> int:
    """A port with `count` free ones from it on; below the range that outgoing connections take theirs from."""
    for _ in range(200):
        base = secrets.randbelow(20_000) + 11_000
        if all(_free(base + offset) for offset in range(count)):
            return base
    raise AssertionError("no row of free ports")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def host(folder: Path, **fields: Any) -> dict[str, Any]:
    """A host entry of the stand-in engine: two devices, its log beside the test; `fields` override, env is joined."""
    env = {"PYTHONPATH": str(STANDIN), "STANDIN_RECORD": str(folder / "record-{device}.json"), **fields.pop("env", {})}
    return {
        "name": "x", "devices": [0, 1], "port_base": fields.pop("port_base", None) or port_base(), "model": "/m/tiny",
        "python": sys.executable, "log_dir": str(folder / "logs"), "env": env, **fields,
    }


class _Asked:
    """What both kinds of server are asked."""

    url: str
    log: list[str]

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
        deadline = time.monotonic() + within
        while (row := (await self.rows())[slot])["state"] != state:
            assert time.monotonic() < deadline, "\n".join([str(row), *self.log])
            await asyncio.sleep(0.03)
        return row


class FleetProcess(_Asked, ServerProcess):
    """`infera serve --replicas FILE` with these `hosts`, as a process of its own."""

    def __init__(self, folder: Path, hosts: list[dict[str, Any]], *flags: str, replicas: Any = (),
                 env: Mapping[str, str] | None = None) -> None:
        super().__init__([], folder, *_brisk(flags), env=env)
        self.file.write_text(json.dumps({"hosts": hosts, "replicas": list(replicas)}))


class FleetServer(_Asked, LocalServer):
    """The same in the test's own loop; `log` holds what was logged. Stopping is what --on-exit says."""

    def __init__(self, folder: Path, hosts: list[dict[str, Any]], *flags: str, replicas: Any = (),
                 env: Mapping[str, str] | None = None) -> None:
        self._file = json.dumps({"hosts": hosts, "replicas": list(replicas)})
        self.log: list[str] = []
        self._handler = _Lines(self.log)
        super().__init__([], folder, *_brisk(flags), env=env)

    def write(self, workers: Any, entries: Any = None) -> None:
        self.file.write_text(self._file)

    async def __aenter__(self) -> Self:
        logger = logging.getLogger("infera")
        logger.addHandler(self._handler)
        self._level = logger.level
        logger.setLevel(logging.INFO)
        return await super().__aenter__()

    async def __aexit__(self, *exc: object) -> None:
        await super().__aexit__(*exc)
        logging.getLogger("infera").removeHandler(self._handler)
        logging.getLogger("infera").setLevel(self._level)

    async def said(self, pattern: str, within: float = 10) -> re.Match[str]:
        """Wait for a logged line that has `pattern`."""
        deadline = time.monotonic() + within
        while True:
            for line in self.log:
                if found := re.search(pattern, line):
                    return found
            assert time.monotonic() < deadline, "\n".join([f"never said {pattern!r}:", *self.log])
            await asyncio.sleep(0.02)


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.extend(f"{record.levelname} {record.getMessage()}".splitlines())


def _brisk(flags: tuple[str, ...]) -> tuple[str, ...]:
    return flags if "--health-interval" in flags else ("--health-interval", "0.2", *flags)


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
