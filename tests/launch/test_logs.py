"""The log of a slot stays short: it is set aside when it grows, at a launch and while its engine runs."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infera_cli.errors import ConfigError
from infera_cli.launch import script
from infera_cli.launch.state import StateFile
from tests.support.fleet import FleetServer, alive, host, launched

WRITER = """
trap 'exit 0' TERM
number=0
while :; do
    number=$((number + 1))
    echo "line $number of this engine"
    sleep 0.01
done
"""


async def until(true: object, within: float = 15) -> None:
    """Wait until a condition holds."""
    assert callable(true)
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_a_log_that_grows_while_the_engine_runs_is_set_aside(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine writes on into an emptied file, three old ones are kept, and no line is torn or out of order."""
    monkeypatch.setattr(script, "ROTATE_ABOVE", 2_000)
    monkeypatch.setattr(script, "ROTATE_EVERY", 0.3)
    entry = host(folder, devices=[0], engine="custom", command=["/bin/sh", "-c", WRITER])
    log = folder / "logs" / "x-d0.log"
    async with FleetServer(folder, [entry], "--initial-replicas", "1") as server:
        await until(lambda: log.with_name("x-d0.log.3").exists())
        (identity,) = launched(folder).values()
        assert alive(identity)
        assert identity.offset == 0, "what `infera fleet logs` shows begins at the new beginning"
        assert (await server.delete("x-d0")).status_code == 200
    assert not log.with_name("x-d0.log.4").exists()
    old = [int(line.split()[1]) for n in (2, 1) for line in log.with_name(f"x-d0.log.{n}").read_text().splitlines()]
    assert len(old) > 100
    assert old == sorted(set(old))
    assert not alive(identity)


async def test_a_log_that_is_too_long_is_set_aside_at_a_launch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch begins with a file of its own; what was before is beside it."""
    monkeypatch.setattr(script, "ROTATE_ABOVE", 100)
    logs = folder / "logs"
    logs.mkdir()
    (logs / "x-d0.log").write_text("an older launch\n" * 10)
    async with FleetServer(folder, [host(folder, devices=[0])], "--initial-replicas", "1") as server:
        await server.until("x-d0", "ready")
        assert (logs / "x-d0.log.1").read_text() == "an older launch\n" * 10
        assert "an older launch" not in (logs / "x-d0.log").read_text()


@contextmanager
def full_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own without a free byte, where one may be mounted; else a place that cannot hold files."""
    place = folder / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)]
    if subprocess.run(mount, check=False, capture_output=True, timeout=10).returncode != 0:
        yield Path("/dev/null")
        return
    try:
        (place / "logs").mkdir()
        with contextlib.suppress(OSError), (place / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True, timeout=10)


async def test_a_full_disk_is_502_in_clear_words_and_leaves_nothing(folder: Path) -> None:
    """No record can be noted there, so nothing is left running, and the slot is free."""
    with full_disk(folder) as place:
        entry = host(folder, devices=[0], log_dir=str(place / "logs"))
        async with FleetServer(folder, [entry], "--initial-replicas", "0") as server:
            answer = await server.post()
            assert answer.status_code == 502
            assert re.search(r"is the disk full\?|cannot make the log folder", answer.json()["message"])
            assert (await server.replicas())["capacity"]["free_slots"] == ["x-d0"]
        assert not (folder / "record-0.json").exists(), "the engine never ran"


def test_a_state_file_on_a_full_disk_is_refused_in_clear_words(tmp_path: Path) -> None:
    """A start that could not write down what it launches is no start."""
    with full_disk(tmp_path) as place:
        state = StateFile(place / "state.json")
        with pytest.raises(ConfigError, match=r"state\.json cannot be (used: No space left on device|locked: Not a)"):
            state.lock("http://127.0.0.1:8000")
        with pytest.raises(ConfigError):
            state.lock("http://127.0.0.1:8000")
