"""`infera fleet`: every verb as a command, over stand-in engines on this machine (bench-and-cli §C1, §D2)."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest

from infera_cli.cli.app import run
from infera_cli.launch.state import StateFile
from tests.support.fleet import FleetProcess, FleetServer, alive, carriers, host, launched, swept
from tests.support.sshd import Home, Sshd

COMMAND = [sys.executable, "-m", "infera_cli", "fleet"]


class Fleet:
    """A replica file, its state, and the command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "fleet.json"
        self.env = {**os.environ, "NO_COLOR": "1", "XDG_STATE_HOME": str(folder / "xdg"), "HOME": str(folder)}

    def write(self, *hosts: dict[str, Any]) -> None:
        self.file.write_text(json.dumps({"hosts": list(hosts)}))

    def __call__(self, verb: str, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        argv = ["fleet", verb, str(self.file), *words]
        out, err, root = io.StringIO(), io.StringIO(), logging.getLogger()
        handlers, level = list(root.handlers), root.level
        with mock.patch.dict(os.environ, self.env, clear=True), redirect_stdout(out), redirect_stderr(err):
            ended = run(argv)
        root.handlers[:], root.level = handlers, level
        assert ended == code, f"{ended}\n{out.getvalue()}\n{err.getvalue()}"
        return subprocess.CompletedProcess(argv, ended, out.getvalue(), err.getvalue())

    def states(self) -> dict[str, str]:
        rows = json.loads(self("status", "-o", "json").stdout)["slots"]
        return {row["slot"]: row["state"] + ("*" if row["drifted"] else "") for row in rows}

    @property
    def pids(self) -> dict[str, int]:
        return {slot: identity.pid for slot, identity in launched(self.folder).items()}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with swept(tmp_path) as folder:
        yield Fleet(folder)


def test_a_dry_run_shows_the_plan_and_changes_nothing(fleet: Fleet) -> None:
    """Slots, places, addresses and the very commands; values of the environment stay out of it."""
    fleet.write(host(fleet.folder, env={"TOKEN": "hush"}))
    text = fleet("up", "--dry-run").stdout
    assert "x-d0" in text
    assert "-m pypto_serving.cli --model /m/tiny --devices 0" in text
    assert "hush" not in text
    plan = json.loads(fleet("up", "--dry-run", "-o", "json", "-n", "1").stdout)["plan"]
    assert [(row["slot"], row["action"]) for row in plan] == [("x-d0", "launch")]
    assert launched(fleet.folder) == {}


def test_up_is_idempotent_and_down_leaves_nothing(fleet: Fleet) -> None:
    """up fills all slots; again it changes nothing; down ends every process; again it has nothing to do."""
    fleet.write(host(fleet.folder))
    assert fleet("up").stdout == "2 ready\n"
    before = launched(fleet.folder)
    assert fleet("up").stdout == "2 kept\n"
    assert fleet.pids == {slot: identity.pid for slot, identity in before.items()}
    assert fleet.states() == {"x-d0": "ready", "x-d1": "ready"}
    assert fleet("down", "--yes").stdout == "2 stopped\n"
    assert [carriers(identity.nonce) for identity in before.values()] == [[], []]
    assert fleet("down").stdout == "nothing to do\n"
    assert fleet.states() == {"x-d0": "free", "x-d1": "free"}


def test_partial_success_is_3_and_keeps_what_works(fleet: Fleet) -> None:
    """One host cannot launch: the other serves on, the failure is named with the end of its log."""
    bad = host(fleet.folder, name="y", devices=[0], serve_args=["--die-after", "0.6", "--ready-after", "60"],
               log_dir=str(fleet.folder / "ylogs"))
    fleet.write(host(fleet.folder, devices=[0]), bad)
    ran = fleet("up", code=3)
    assert ran.stdout == "1 ready, 1 failed\n"
    assert "CUDA out of memory" in ran.stderr
    assert "y-d0: it ended with status 1: a device has not enough memory" in ran.stderr
    assert fleet.states() == {"x-d0": "ready", "y-d0": "free"}
    assert "it ended with status 1: a device has not enough memory" in fleet("status").stdout, "status knows it later"


def test_nothing_launched_is_1_and_names_the_reason(fleet: Fleet) -> None:
    """All failed for the same kind of reason."""
    fleet.write(host(fleet.folder, devices=[0], python="/none/python"))
    assert "/none/python: not found" in fleet("up", code=1).stderr


def test_not_ready_in_time_is_stopped_and_told(fleet: Fleet) -> None:
    """--timeout bounds the launch."""
    fleet.write(host(fleet.folder, devices=[0], serve_args=["--ready-after", "60"]))
    ran = fleet("up", "--timeout", "1.5", code=1)
    assert "not ready within --launch-timeout 1.5 s" in ran.stderr
    assert fleet.states() == {"x-d0": "free"}


def test_no_wait_returns_and_the_next_command_goes_on(fleet: Fleet) -> None:
    """What loads while nobody watches is taken over by the next command."""
    fleet.write(host(fleet.folder, devices=[0], serve_args=["--ready-after", "2"]))
    assert fleet("up", "--no-wait").stdout == "1 started\n"
    assert fleet.states()["x-d0"] in ("loading", "ready")
    assert fleet("up").stdout in ("1 ready\n", "1 kept\n")
    assert fleet("down", "--yes").stdout == "1 stopped\n"


def test_down_asks_before_it_stops_what_serves(fleet: Fleet) -> None:
    """Nobody to ask: usage error that names --yes, and nothing is stopped."""
    fleet.write(host(fleet.folder, devices=[0]))
    fleet("up")
    assert "--yes" in fleet("down", code=2).stderr
    assert fleet.states() == {"x-d0": "ready"}
    assert fleet("down", "x-d0", "-y").stdout == "1 stopped\n"


def test_down_with_force_kills_at_once(fleet: Fleet) -> None:
    """An engine that ignores TERM costs no grace."""
    fleet.write(host(fleet.folder, devices=[0], serve_args=["--ignore-term"]))
    fleet("up")
    (identity,) = launched(fleet.folder).values()
    assert fleet("down", "--force", "-y").stdout == "1 stopped\n"
    assert carriers(identity.nonce) == []


@pytest.mark.parametrize("content", ["garbage", "[]", '{"replicas": 3}'])
def test_status_without_a_usable_state_file_knows_nothing_of_the_slots(fleet: Fleet, content: str) -> None:
    """Something may run there, so the slots are unknown and not free, and the file is named."""
    fleet.write(host(fleet.folder))
    state = fleet.folder / "s.json"
    state.write_text(content)
    told = fleet("status", "--state-file", str(state), "-o", "json")
    assert {row["state"] for row in json.loads(told.stdout)["slots"]} == {"unknown"}
    assert str(state) in told.stderr


def test_scale_launches_and_stops(fleet: Fleet) -> None:
    """Down takes what does not serve first, then the last slots; it asks, too."""
    fleet.write(host(fleet.folder, devices="0-2"))
    assert fleet("scale", "2").stdout == "2 ready\n"
    assert fleet.states() == {"x-d0": "ready", "x-d1": "ready", "x-d2": "free"}
    assert "x-d1" in fleet("scale", "1", code=2).stderr
    assert fleet("scale", "1", "-y").stdout == "1 stopped\n"
    assert fleet.states() == {"x-d0": "ready", "x-d1": "free", "x-d2": "free"}


def test_restart_replaces_the_process(fleet: Fleet) -> None:
    """A name may be cut short; the others are left alone."""
    fleet.write(host(fleet.folder))
    fleet("up")
    before = fleet.pids
    assert fleet("restart", "x-d1").stdout == "1 ready\n"
    assert fleet.pids["x-d0"] == before["x-d0"]
    assert fleet.pids["x-d1"] != before["x-d1"]
    assert "no slot 'z'" in fleet("restart", "z", code=1).stderr


def test_rollout_goes_one_by_one_stops_at_a_failure_and_resumes(fleet: Fleet) -> None:
    """Drift is shown; a bad file stops at the first slot and the others serve on; a good one finishes the job."""
    entry = host(fleet.folder)
    fleet.write(entry)
    fleet("up")
    fleet.write({**entry, "serve_args": ["--die-after", "0.5", "--ready-after", "60"]})
    assert fleet.states() == {"x-d0": "ready*", "x-d1": "ready*"}
    assert fleet("rollout", code=1).stdout == "1 failed, 1 untouched\n"
    assert fleet.states() == {"x-d0": "free", "x-d1": "ready*"}
    fleet.write({**entry, "serve_args": ["--generation", "2"]})
    assert fleet("rollout").stdout == "2 ready\n"
    assert fleet.states() == {"x-d0": "ready", "x-d1": "ready"}
    assert fleet("rollout").stdout == "nothing to do\n"


def test_logs_show_the_present_launch_and_follow_it(fleet: Fleet) -> None:
    """The tail of the slot's log; -f goes on as it grows, until Ctrl-C."""
    fleet.write(host(fleet.folder, devices=[0]))
    fleet("up")
    log = fleet.folder / "logs" / "x-d0.log"
    assert fleet("logs", "x-d0").stdout == log.read_text() == "the stand-in starts\n"
    fleet("restart", "x-d0")
    assert log.read_text().count("the stand-in starts") == 2
    assert fleet("logs", "x", "-n", "50").stdout == "the stand-in starts\n"
    following = subprocess.Popen([*COMMAND, "logs", str(fleet.file), "x-d0", "-f"], env=fleet.env, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert following.stdout is not None
    assert following.stdout.readline() == "the stand-in starts\n"
    with log.open("a") as file:
        file.write("one more\n")
    assert following.stdout.readline() == "one more\n"
    following.send_signal(signal.SIGINT)
    assert following.wait(10) == 130
    following.stdout.close()


def test_logs_of_a_slot_that_was_never_launched_say_so(fleet: Fleet) -> None:
    """One sentence, exit 1."""
    fleet.write(host(fleet.folder, devices=[0]))
    assert "there is no log" in fleet("logs", "x-d0", code=1).stderr


def test_an_unreachable_machine_is_unknown_and_not_dead(fleet: Fleet) -> None:
    """Its replica is not answering and cannot be asked about: unknown; up alone exits 6."""
    home = Home(fleet.folder / "home")
    fleet.env = {**home.env, "NO_COLOR": "1", "XDG_STATE_HOME": str(fleet.folder / "xdg")}
    with Sshd(fleet.folder / "gpu1", authorized=[home.key]) as server:
        home.alias("gpu1", server)
        home.trust(server)
        fleet.write(host(fleet.folder, ssh="gpu1", devices=[0]))
        fleet("up")
    (identity,) = launched(fleet.folder).values()
    assert fleet.states() == {"x-d0": "ready"}, "it answers, so it is there"
    for pid in carriers(identity.nonce):
        os.kill(pid, signal.SIGKILL)
    assert fleet.states() == {"x-d0": "unknown"}
    assert "cannot reach" in fleet("up", code=6).stderr
    assert "cannot reach" in fleet("down", "-y", code=1).stderr, "whether it stopped is not known"


def test_what_a_file_declares_no_more_is_an_orphan_that_down_ends(fleet: Fleet) -> None:
    """Orphans on record are listed, named to whoever is asked, and stopped with the rest."""
    entry = host(fleet.folder)
    fleet.write(entry)
    fleet("up")
    fleet.write({**entry, "devices": [0]})
    assert fleet.states() == {"x-d0": "ready", "x-d1": "orphan*"}
    assert "x-d0, x-d1 serve now" in fleet("down", code=2).stderr
    assert fleet("down", "x-d1", "-y").stdout == "1 stopped\n"
    assert fleet.states() == {"x-d0": "ready"}
    assert not any(alive(identity) for slot, identity in launched(fleet.folder).items() if slot == "x-d1")


def test_an_orphan_whose_machine_left_the_file_is_told_and_forgotten_when_it_is_gone(fleet: Fleet) -> None:
    """It cannot be ended from here while it answers; once nothing answers, down forgets it."""
    fleet.write(host(fleet.folder, devices=[0]))
    fleet("up")
    fleet.write(host(fleet.folder, name="y", devices=[0]))
    assert "its machine 'x' is not in the file; put it back" in fleet("down", "-y", code=1).stderr
    (identity,) = launched(fleet.folder).values()
    for pid in carriers(identity.nonce):
        os.kill(pid, signal.SIGKILL)
    assert fleet("down", "-y").stdout in ("1 stopped\n", "nothing to do\n")
    assert fleet.states() == {"y-d0": "free"}


def test_a_refused_machine_is_7(fleet: Fleet) -> None:
    """A host key nobody knows."""
    home = Home(fleet.folder / "home")
    fleet.env = {**home.env, "NO_COLOR": "1", "XDG_STATE_HOME": str(fleet.folder / "xdg")}
    with Sshd(fleet.folder / "gpu1", authorized=[home.key]) as server:
        home.alias("gpu1", server)
        fleet.write(host(fleet.folder, ssh="gpu1", devices=[0]))
        assert "SHA256:" in fleet("up", code=7).stderr
        assert fleet("up", "--ssh-host-keys", "accept-new").stdout == "1 ready\n"


def test_another_command_that_holds_the_state_is_8_and_named(fleet: Fleet) -> None:
    """Two owners are kept apart; looking is allowed all the same."""
    fleet.write(host(fleet.folder, devices=[0]))
    held = StateFile(fleet.folder / "s.json")
    held.lock(None)
    try:
        ran = fleet("up", "--state-file", str(held.path), code=8)
        assert f"belongs to process {os.getpid()}" in ran.stderr
        fleet("status", "--state-file", str(held.path))
    finally:
        held.unlock()


async def test_a_running_server_is_asked_instead(fleet: Fleet) -> None:
    """up, restart, scale, rollout and down go through the API of the server that owns the slots."""
    entry = host(fleet.folder)
    state = ("--state-file", str(fleet.folder / "state.json"))
    async with FleetProcess(fleet.folder, [entry], *state, env={"INFERA_ADMIN_TOKEN": "sesame"}) as server:
        await server.said("x-d0: ready")
        fleet.file = server.file
        fleet.env["INFERA_ADMIN_TOKEN"] = "sesame"

        async def ask(verb: str, *words: str, code: int = 0) -> str:
            return (await asyncio.to_thread(fleet, verb, *words, *state, code=code)).stdout

        assert await ask("up") == "1 kept, 1 ready\n"
        before = fleet.pids
        assert await ask("restart", "x-d1") == "1 ready\n"
        assert fleet.pids["x-d1"] != before["x-d1"]
        server.file.write_text(json.dumps({"hosts": [{**entry, "serve_args": ["--generation", "2"]}]}))
        assert await ask("rollout") == "2 ready\n"
        assert await ask("rollout") == "nothing to do\n"
        assert await ask("scale", "1", "-y") == "1 stopped\n"
        assert await ask("down", "-y") == "1 stopped\n"
        assert server.running
        fleet.env["INFERA_ADMIN_TOKEN"] = "wrong"
        await asyncio.to_thread(fleet, "up", *state, code=7)


async def test_a_launch_that_fails_at_a_server_shows_its_log_here(fleet: Fleet) -> None:
    """The log's end is told without asking, whoever launched."""
    state = ("--state-file", str(fleet.folder / "state.json"))
    entry = host(fleet.folder, devices=[0], serve_args=["--die-after", "1", "--ready-after", "60"])
    async with FleetProcess(fleet.folder, [entry], "--initial-replicas", "0", *state) as server:
        fleet.file = server.file
        ran = await asyncio.to_thread(fleet, "up", *state, code=1)
        assert "CUDA out of memory" in ran.stderr


async def test_down_drains_at_the_router_that_is_named(fleet: Fleet) -> None:
    """A router that serves the replica as one of its own is told first; it gives it no new work from then on."""
    entry = host(fleet.folder, devices=[0])
    fleet.write(entry)
    await asyncio.to_thread(fleet, "up")
    static = [{"name": "node0", "host": "127.0.0.1", "port": entry["port_base"]}]
    router_file = fleet.folder / "router"
    router_file.mkdir()
    other = host(router_file, devices=[0])
    async with FleetServer(router_file, [other], "--initial-replicas", "0", replicas=static) as router:
        (identity,) = [found for found in launched(fleet.folder).values() if alive(found)]
        ran = await asyncio.to_thread(fleet, "down", "-y", "--server", router.url)
        assert "x-d0  draining" in ran.stderr
        async with httpx.AsyncClient() as client:
            workers = (await client.get(f"{router.url}/v1/workers")).json()["workers"]
        assert [worker["draining"] for worker in workers] == [True]
    assert not alive(identity)


def test_a_router_that_does_not_answer_stops_nothing(fleet: Fleet) -> None:
    """Named and not there: exit 6, and the replicas serve on."""
    fleet.write(host(fleet.folder, devices=[0]))
    fleet("up")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert "nothing was stopped" in fleet("down", "-y", "--server", url, code=6).stderr
    assert fleet.states() == {"x-d0": "ready"}


@pytest.mark.parametrize("words", [("up", "-n", "many"), ("up", "--timeout", "soon"), ("up", "-o", "yaml"),
                                   ("up", "--ssh-host-keys", "never"), ("restart", "--max-unavailable", "x")])
def test_a_flag_that_does_not_parse_is_2(fleet: Fleet, words: tuple[str, ...]) -> None:
    """Before anything is read or launched."""
    fleet.write(host(fleet.folder))
    assert fleet(words[0], *words[1:], code=2).stderr.startswith("error: ")


def test_a_file_without_machines_is_1(fleet: Fleet) -> None:
    """Nothing to launch; a missing file likewise."""
    fleet.file.write_text('{"replicas": [{"host": "a", "port": 1}]}')
    assert 'declares no machines under "hosts"' in fleet("up", code=1).stderr
    fleet.file.unlink()
    assert "cannot be read" in fleet("up", code=1).stderr
