"""The examples about fleets run as they say."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import FleetProcess, port_base, swept

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with swept(tmp_path) as path:
        yield path


def hosts(folder: Path) -> list[dict[str, object]]:
    """The machines of examples/fleet.json, with ports and logs of the test's own."""
    (entry,) = json.loads((EXAMPLES / "fleet.json").read_text())["hosts"]
    return [{**entry, "port_base": port_base(), "log_dir": str(folder / "logs")}]


async def test_a_server_of_the_example_grows_and_shrinks(folder: Path) -> None:
    """grow_and_shrink.py launches one more replica, waits for it, and stops it."""
    async with FleetProcess(folder, hosts(folder)) as server:
        await server.said("here-d0: ready")
        command = [sys.executable, str(EXAMPLES / "grow_and_shrink.py"), server.url]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "launched here-d1", "here-d1 is ready", "stopped here-d1, free now: here-d1, here-d2"]


def test_the_example_file_goes_up_and_down(folder: Path) -> None:
    """`infera fleet up` and `down` over examples/fleet.json."""
    file = folder / "fleet.json"
    file.write_text(json.dumps({"hosts": hosts(folder)}))
    for words, out in ((["up"], "3 ready\n"), (["down", "--yes"], "3 stopped\n")):
        command = [sys.executable, "-m", "infera_cli", "fleet", words[0], str(file), *words[1:],
                   "--state-file", str(folder / "state.json")]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        assert (ran.returncode, ran.stdout) == (0, out), ran.stderr
