"""Replicas on machines over SSH, by the real server and real OpenSSH servers (replica-router §1.5; rulings 13)."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from infera_cli.errors import ConfigError
from tests.support.fleet import STANDIN, FleetServer, alive, carriers, host, launched
from tests.support.sshd import Home, Sshd


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(folder / "home")
    monkeypatch.setenv("HOME", str(made.folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return made


@pytest.fixture
def gpu1(home: Home, folder: Path) -> Iterator[Sshd]:
    """A machine that refuses environment requests and has a short PATH, as most have."""
    options = ["SetEnv PATH=/usr/bin:/bin", "AcceptEnv NOTHING"]
    with Sshd(folder / "gpu1", authorized=[home.key], options=options) as server:
        home.alias("gpu1", server)
        home.trust(server)
        yield server


def remote(folder: Path, **fields: Any) -> dict[str, Any]:
    return host(folder, ssh="gpu1", **fields)


async def test_a_remote_replica_is_launched_served_and_stopped(folder: Path, gpu1: Sshd) -> None:
    """POST, a request, DELETE; HTTP goes to the HostName of the ssh config, and nothing is left."""
    async with FleetServer(folder, [remote(folder)]) as server, httpx.AsyncClient() as client:
        row = await server.until("x-d0", "ready")
        assert (row["place"], row["url"].rpartition(":")[0]) == ("gpu1", "http://127.0.0.1")
        answer = await client.post(f"{server.url}/v1/completions", json={"model": "tiny", "prompt": "a"})
        assert answer.headers["X-Infera-Worker"] == "x-d0"
        identity = launched(folder)["x-d0"]
        assert (await server.delete("x-d0")).status_code == 200
        assert carriers(identity.nonce) == []


async def test_r134_b1_every_word_arrives_as_it_was_written(folder: Path, gpu1: Sshd) -> None:
    """Arguments, environment, model and working directory with blanks, quotes, dollars and semicolons."""
    workdir = folder / "rel 1"
    workdir.mkdir()
    words = ["--name", "a b", "--tpl", "{{x}} $HOME *", "--q", 'it\'s "ok"', "; touch pwned", "line\nbreak", "`id`"]
    entry = remote(folder, model="/m/My Model", workdir=str(workdir), serve_args=words,
                   env={"MONTHS": "01 02", "Q": "a'b", "NL": "x\ny", "D": "$HOME `id` \\"})
    async with FleetServer(folder, [entry]) as server:
        await server.until("x-d0", "ready")
        told = json.loads((folder / "record-0.json").read_text())
    assert told["argv"][:2] == ["--model", "/m/My Model"]
    assert told["argv"][-len(words):] == words
    env = told["env"]
    assert (env["MONTHS"], env["Q"], env["NL"], env["D"]) == ("01 02", "a'b", "x\ny", "$HOME `id` \\")
    assert told["cwd"] == str(workdir)
    assert not list(folder.rglob("pwned"))


async def test_r136_the_configured_environment_and_interpreter_are_used(folder: Path, gpu1: Sshd) -> None:
    """A non-login shell with a short PATH: env arrives all the same, and that very interpreter runs."""
    entry = remote(folder, devices=[4, 5, 6, 7], devices_per_replica=4,
                   env={"PYTHONHASHSEED": "0", "VISIBLE": "{devices}"})
    async with FleetServer(folder, [entry]) as server:
        await server.until("x-d4", "ready")
        told = json.loads((folder / "record-4.json").read_text())
    assert (told["env"]["PYTHONHASHSEED"], told["env"]["VISIBLE"]) == ("0", "4,5,6,7")
    assert told["python"] == sys.executable


async def test_r136_a_missing_remote_interpreter_is_502_with_status_127(folder: Path, gpu1: Sshd) -> None:
    """The machine's own words are in the answer."""
    async with FleetServer(folder, [remote(folder, python="/opt/py/bin/none")], "--initial-replicas", "0") as server:
        answer = await server.post()
        assert answer.status_code == 502
        assert "status 127" in answer.json()["message"]
        assert "/opt/py/bin/none: not found" in answer.json()["message"]
        assert (await server.replicas())["capacity"]["owned"] == 0


async def test_b2_a_missing_remote_workdir_is_502(folder: Path, gpu1: Sshd) -> None:
    """A failing cd is not hidden by the background."""
    async with FleetServer(folder, [remote(folder, workdir="/no/such")], "--initial-replicas", "0") as server:
        answer = await server.post()
    assert answer.status_code == 502
    assert "cannot enter the working directory /no/such" in answer.json()["message"]


async def test_no_secret_of_the_environment_shows_in_a_process_list(folder: Path, gpu1: Sshd) -> None:
    """Environment travels on standard input, never in anybody's arguments."""
    async with FleetServer(folder, [remote(folder, env={"HF_TOKEN": "hf_hush_hush"})]) as server:
        await server.until("x-d0", "ready")
        lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        told = json.loads((folder / "record-0.json").read_text())
    assert told["env"]["HF_TOKEN"] == "hf_hush_hush"
    assert not any(b"hf_hush_hush" in line for line in lines)
    assert not any("hf_hush_hush" in line for line in server.log)


async def test_a_detached_replica_outlives_its_connection(folder: Path, gpu1: Sshd) -> None:
    """The SSH server goes away and comes back: the engine runs on, and is stopped over a new connection."""
    async with FleetServer(folder, [remote(folder)]) as server:
        await server.until("x-d0", "ready")
        identity = launched(folder)["x-d0"]
        gpu1.stop()
        assert alive(identity)
        gpu1.start()
        assert (await server.delete("x-d0")).status_code == 200
        assert not alive(identity)


async def test_an_unreachable_machine_is_502_and_its_slot_is_free(folder: Path, home: Home) -> None:
    """Nothing was sent, so nothing can be there."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        home.config.write_text(f"Host gpu1\n HostName 127.0.0.1\n Port {unused.getsockname()[1]}\n")
        async with FleetServer(folder, [remote(folder)], "--initial-replicas", "0") as server:
            answer = await server.post()
            assert answer.status_code == 502
            assert "cannot reach" in answer.json()["message"]
            assert (await server.replicas())["capacity"]["free_slots"] == ["x-d0", "x-d1"]
            assert (await server.rows())["x-d0"]["state"] == "free"


async def test_an_unknown_host_key_is_502_with_its_fingerprint(folder: Path, home: Home, gpu1: Sshd) -> None:
    """Refused by default; --ssh-host-keys accept-new notes it."""
    home.known_hosts.write_text("")
    async with FleetServer(folder, [remote(folder)], "--initial-replicas", "0") as server:
        answer = await server.post()
        assert answer.status_code == 502
        assert "SHA256:" in answer.json()["message"]
    flags = ("--initial-replicas", "0", "--ssh-host-keys", "accept-new")
    async with FleetServer(folder, [remote(folder)], *flags) as server:
        assert (await server.post()).status_code == 202
    assert home.known_hosts.read_text() == gpu1.known_line


async def test_r133_a_machine_that_never_answers_fails_at_the_launch_timeout(folder: Path, home: Home) -> None:
    """An SSH server that falls silent: 502 in time, the slot is free, and /health is quick throughout."""

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await reader.read()
        writer.close()

    mute = await asyncio.start_server(silence, "127.0.0.1", 0)
    home.config.write_text(f"Host gpu1\n HostName 127.0.0.1\n Port {mute.sockets[0].getsockname()[1]}\n")
    flags = ("--launch-timeout", "2", "--initial-replicas", "0")
    async with mute, FleetServer(folder, [remote(folder)], *flags) as server:
        begun, slowest = time.monotonic(), 0.0
        posting = asyncio.create_task(server.post())
        async with httpx.AsyncClient() as client:
            while not posting.done():
                asked = time.monotonic()
                await client.get(f"{server.url}/health")
                slowest = max(slowest, time.monotonic() - asked)
                await asyncio.sleep(0.1)
        assert (await posting).status_code == 502
        assert 1.8 < time.monotonic() - begun < 4.5
        assert slowest < 0.5
        assert (await server.replicas())["capacity"]["owned"] == 0


async def test_one_connection_a_machine_serves_all_its_slots(folder: Path, gpu1: Sshd) -> None:
    """Eight launches at once, one login."""
    command = [sys.executable, "-S", str(STANDIN / "pypto_serving" / "cli.py"), "--model", "m", "--port", "{port}"]
    entry = remote(folder, devices=list(range(8)), engine="custom", command=command)
    async with FleetServer(folder, [entry], "--initial-replicas", "8") as server:
        for device in range(8):
            await server.until(f"x-d{device}", "ready", within=30)
        assert gpu1.log.read_text().count("Accepted publickey") == 1


async def test_two_aliases_of_one_machine_with_the_same_ports_are_refused(folder: Path, home: Home, gpu1: Sshd) -> None:
    """Row 28 holds for what the aliases stand for."""
    home.alias("gpu2", gpu1)
    entry = remote(folder)
    with pytest.raises(ConfigError, match="slots x-d0 and y-d0 would both be"):
        FleetServer(folder, [entry, {**entry, "name": "y", "ssh": "gpu2"}])


async def test_a_replica_is_adopted_over_ssh_after_a_restart(folder: Path, gpu1: Sshd) -> None:
    """The same process serves the next router; with the machine unreachable it is adopted unverified."""
    entry, flags = remote(folder), ("--state-file", str(folder / "state.json"))
    async with FleetServer(folder, [entry], *flags) as server:
        await server.until("x-d0", "ready")
    identity = launched(folder)["x-d0"]
    gpu1.stop()
    async with FleetServer(folder, [entry], *flags) as server:
        assert (await server.until("x-d0", "ready", within=3))["pid"] == identity.pid
        await server.said("WARNING x-d0: cannot reach")
    gpu1.start()
    async with FleetServer(folder, [entry], *flags, "--on-exit", "stop") as server:
        assert (await server.until("x-d0", "ready", within=3))["pid"] == identity.pid
    assert not alive(identity)
