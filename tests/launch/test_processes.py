"""Ending what has no process on record, and what the local machine promises (replica-router §1.6)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from infera_cli.errors import HostUnreachable
from infera_cli.launch.engines import ENGINES
from infera_cli.launch.local import LocalMachine
from infera_cli.launch.machine import Capture
from infera_cli.launch.processes import Processes
from infera_cli.launch.replacement import Rules
from infera_cli.launch.state import Record
from infera_cli.wiring.machines import RealTime
from tests.launch.worlds import Nowhere, launches

OLD = Record(slot="x-d0", host="x", devices=(0,), address="127.0.0.1", port=8001)


@pytest.mark.parametrize(("code", "warned"), [(0, False), (1, False), (2, True)])
async def test_b37_pkill_that_matches_nothing_means_already_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: int, warned: bool
) -> None:
    """Without a process on record the engine is looked for by its module and port; status 1 is no failure."""
    pkill = tmp_path / "pkill"
    pkill.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >"{tmp_path}/said"\nexit {code}\n')
    pkill.chmod(0o755)
    machine = LocalMachine({"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    processes = Processes({"x": machine}, Nowhere(), RealTime(), Rules())
    assert await processes.end(launches(1)[0], OLD) is None
    assert (tmp_path / "said").read_text().splitlines() == [
        "-TERM", "-f", "--", r"[p]ypto_serving\.cli.*--port[ =]8001( |$)"]
    assert ("ended with status" in caplog.text) is warned


@pytest.mark.parametrize("engine", list(ENGINES))
async def test_r088_every_launched_replica_has_the_same_hash_seed(tmp_path: Path, engine: str) -> None:
    """It is in the environment before the engine starts."""
    assert await _seed(tmp_path, {}, engine=engine) == "0"


@pytest.mark.parametrize(("surroundings", "env", "seed"), [
    ({"PYTHONHASHSEED": "7"}, {}, "7"), ({}, {"PYTHONHASHSEED": "8"}, "8"),
    ({"PYTHONHASHSEED": "7"}, {"PYTHONHASHSEED": "8"}, "8"), ({"PYTHONHASHSEED": "random"}, {}, "random"),
])  # fmt: skip
async def test_r088_a_hash_seed_that_somebody_set_stays(
    tmp_path: Path, surroundings: dict[str, str], env: dict[str, str], seed: str
) -> None:
    """The machine's own counts, and the host entry's more."""
    assert await _seed(tmp_path, surroundings, env=env, engine="vllm") == seed


async def _seed(folder: Path, surroundings: dict[str, str], **fields: Any) -> str:
    """The hash seed that a replica of this machine is started with."""
    python = folder / "python"
    python.write_text('#!/bin/sh\necho "seed=$PYTHONHASHSEED"\n')
    python.chmod(0o755)
    command = (str(python),) if fields.get("engine") == "custom" else ()
    launch = launches(1, python=str(python), command=command, log_dir=str(folder), **fields)[0]
    machine = LocalMachine({"PATH": os.environ["PATH"], **surroundings})
    await Processes({"x": machine}, Nowhere(), RealTime(), Rules()).start(launch, "n1")
    return Path(launch.log).read_text().strip().partition("=")[2]


async def test_a_text_that_arrives_cut_off_does_nothing(tmp_path: Path) -> None:
    """The call stands in the last line: a prefix of a text is at most an error."""
    text = f'act() {{\ntouch "{tmp_path}/done"\n}}\nact \'a\' \'b\'\n'
    machine = LocalMachine()
    for cut in range(len(text) - len("act 'a' 'b'\n")):
        await machine.run(text[:cut], within=10)
    assert not (tmp_path / "done").exists()
    assert (await machine.run(text, within=10)).status == 0
    assert (tmp_path / "done").exists()


async def test_a_command_that_hangs_is_cut_off(tmp_path: Path) -> None:
    """After its time it is killed and reaped, and the machine counts as unreachable."""
    with pytest.raises(HostUnreachable, match=r"longer than 0\.3 s"):
        await LocalMachine().run("sleep 60\n", within=0.3)


async def test_variables_of_ours_are_not_handed_on() -> None:
    """Some of them are secrets."""
    machine = LocalMachine({"INFERA_ADMIN_TOKEN": "hush", "PATH": os.environ["PATH"]})
    assert "hush" not in (await machine.run("env\n", within=10)).text


def test_of_a_long_output_beginning_and_end_are_kept() -> None:
    """With a remark of what is missing between."""
    kept = Capture(10)
    for piece in (b"0123456789", b"a" * 10_000, b"the end"):
        kept.add(piece)
    text = kept.text()
    assert text.startswith("0123456789\n[")
    assert "bytes left out]" in text
    assert text.endswith("the end")
