"""A restart finds what an earlier router launched (replica-router §1.9, §1.13; rulings 1, 14, 15)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from infera_cli.errors import ConfigError, StateLocked
from tests.support.fleet import FleetProcess, FleetServer, alive, carriers, host, launched, start_time


def state(folder: Path) -> tuple[str, str]:
    return "--state-file", str(folder / "state.json")


def recorded(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "state.json").read_text())["replicas"])


async def running(folder: Path, entry: dict[str, Any], *flags: str) -> None:
    """Leave one ready replica behind."""
    async with FleetServer(folder, [entry], *state(folder), *flags) as server:
        await server.until("x-d0", "ready")


async def test_b5_adopted_replicas_count_towards_the_initial_ones(folder: Path) -> None:
    """A restart adopts one and launches none more; the same process serves on."""
    entry = host(folder)
    await running(folder, entry)
    before = launched(folder)["x-d0"]
    async with FleetServer(folder, [entry], *state(folder)) as server:
        row = await server.until("x-d0", "ready", within=2)
        assert (row["pid"], row["drifted"]) == (before.pid, False)
        assert (await server.rows())["x-d1"]["state"] == "free"
        await server.said("x-d0 .*adopted, serving")


async def test_a32_the_whole_group_is_on_record_in_a_private_file(folder: Path) -> None:
    """The state file has the sheet's fields, and mode 0600."""
    entry = host(folder, devices=[2, 3], devices_per_replica=2)
    async with FleetServer(folder, [entry], *state(folder)) as server:
        await server.until("x-d2", "ready")
    (told,) = recorded(folder)
    assert {key: told[key] for key in ("slot", "host", "devices", "address", "port")} == {
        "slot": "x-d2", "host": "x", "devices": [2, 3], "address": "127.0.0.1", "port": entry["port_base"] + 2}
    assert (folder / "state.json").stat().st_mode & 0o777 == 0o600


async def test_drift_is_shown_and_not_acted_on(folder: Path) -> None:
    """What was started with other words is adopted, and shown as drifted."""
    entry = host(folder)
    await running(folder, entry)
    async with FleetServer(folder, [{**entry, "serve_args": ["--new", "words"]}], *state(folder)) as server:
        assert (await server.until("x-d0", "ready"))["drifted"] is True


@pytest.mark.parametrize("stage", ["starting", "loading"])
async def test_b11_sigkill_during_a_launch_leaves_no_orphan(folder: Path, stage: str) -> None:
    """Killed at any stage of a launch: the next start goes on with that very process, or launches anew."""
    entry = host(folder, devices=[0], serve_args=["--ready-after", "2.5"])
    async with FleetProcess(folder, [entry], *state(folder), "--initial-replicas", "0") as server:
        posting = asyncio.create_task(server.post())
        if stage == "starting":
            while not list((folder / "logs").glob("*.run")):
                await asyncio.sleep(0.002)
        else:
            await server.until("x-d0", "loading")
        server.signal(signal.SIGKILL)
        await asyncio.gather(posting, return_exceptions=True)
        await server.stop()
    async with FleetServer(folder, [entry], *state(folder)) as server:
        row = await server.until("x-d0", "ready")
        (identity,) = launched(folder).values()
        assert row["pid"] == identity.pid
        assert (await server.delete("x-d0")).status_code == 200
        assert carriers(identity.nonce) == []


async def test_a_crash_stops_nothing_and_the_engine_is_adopted(folder: Path) -> None:
    """SIGKILL of a serving router: its replica serves the next one."""
    entry = host(folder)
    async with FleetProcess(folder, [entry], *state(folder)) as server:
        await server.until("x-d0", "ready")
        server.signal(signal.SIGKILL)
        await server.stop()
    before = launched(folder)["x-d0"]
    assert alive(before)
    async with FleetServer(folder, [entry], *state(folder)) as server:
        assert (await server.until("x-d0", "ready", within=2))["pid"] == before.pid


async def test_r143_a_reused_pid_is_never_trusted(folder: Path) -> None:
    """A recorded pid that is somebody else now: dropped with one warning, not signalled, the slot is free."""
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    entry = host(folder)
    process = {"nonce": "aa", "pid": stranger.pid, "start": "12", "boot": boot, "offset": 0}
    write(folder, slot="x-d0", port=entry["port_base"], process=process, nonce="aa", ready=True)
    try:
        async with FleetServer(folder, [entry], *state(folder), "--initial-replicas", "0") as server:
            assert (await server.rows())["x-d0"]["state"] == "free"
            assert (await server.replicas())["capacity"]["free_slots"] == ["x-d0", "x-d1"]
            warnings = [line for line in server.log if line.startswith("WARNING")]
            assert len(warnings) == 1
            assert f"process {stranger.pid} is gone" in warnings[0]
            assert (await server.delete("x-d0")).status_code == 404
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
    assert recorded(folder) == []


async def test_r143_a_record_of_another_boot_is_never_trusted(folder: Path) -> None:
    """Same pid and start time, but before a reboot: not the same process."""
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    entry = host(folder)
    process = {"nonce": "aa", "pid": stranger.pid, "start": start_time(stranger.pid), "boot": "other", "offset": 0}
    write(folder, slot="x-d0", port=entry["port_base"], process=process, nonce="aa")
    try:
        async with FleetServer(folder, [entry], *state(folder), "--initial-replicas", "0") as server:
            await server.said("is dropped: process .* is gone")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_b11_a_recorded_slot_that_does_not_answer_is_used_last(folder: Path) -> None:
    """The older form, without a process: suspect, so the other slot is launched first."""
    entry = host(folder)
    write(folder, slot="x-d0", port=entry["port_base"])
    async with FleetServer(folder, [entry], *state(folder)) as server:
        await server.until("x-d1", "ready")
        assert (await server.rows())["x-d0"]["state"] == "unknown"
        await server.said("x-d0 .* is suspect")
    assert {told["slot"] for told in recorded(folder)} == {"x-d0", "x-d1"}


async def test_the_older_form_with_a_single_device_is_adopted_when_it_answers(folder: Path) -> None:
    """`device` instead of `devices`, no process: answering is enough (replica-router §1.9)."""
    entry = host(folder)
    async with await health_server(entry["port_base"]):
        write(folder, slot="x-d0", port=entry["port_base"], devices=None, device=0)
        async with FleetServer(folder, [entry], *state(folder), "--on-exit", "keep") as server:
            assert (await server.until("x-d0", "ready"))["pid"] is None


async def test_b10_a_changed_port_base_makes_an_orphan_of_what_cannot_be_stopped(folder: Path) -> None:
    """Without a process on record only a stop command could end it, which knows the new port: left alone, named."""
    entry = host(folder)
    old = host(folder)["port_base"]
    async with await health_server(old):
        write(folder, slot="x-d0", port=old)
        async with FleetServer(folder, [entry], *state(folder), "--initial-replicas", "0") as server:
            found = await server.said(rf"x-d0 \(http://127\.0\.0\.1:{old} on x, devices 0\) is a probable orphan")
            assert found
            assert (await server.replicas())["replicas"] == []


async def test_a_changed_port_base_with_a_process_on_record_is_adopted_as_drifted(folder: Path) -> None:
    """Its process is known, so it is served at its old address, and can be stopped."""
    entry = host(folder)
    await running(folder, entry)
    identity = launched(folder)["x-d0"]
    async with FleetServer(folder, [{**entry, "port_base": host(folder)["port_base"]}], *state(folder)) as server:
        assert (await server.until("x-d0", "ready"))["drifted"] is True
        assert (await server.replicas())["replicas"][0]["url"] == f"http://127.0.0.1:{entry['port_base']}"
        assert (await server.delete("x-d0")).status_code == 200
    assert not alive(identity)


async def test_a_slot_that_is_not_declared_any_more_is_named_at_every_start(folder: Path) -> None:
    """An orphan stays on record until it is gone."""
    entry = host(folder)
    await running(folder, entry)
    other = {**host(folder), "name": "y"}
    for _ in range(2):
        async with FleetServer(folder, [other], *state(folder), "--initial-replicas", "0") as server:
            await server.said("x-d0 .* is a probable orphan, and is left alone: its slot is not declared")
    assert alive(launched(folder)["x-d0"])


@pytest.mark.parametrize("content", [
    "", "{", "[]", '{"replicas": {}}', '{"replicas": [1, {"slot": "x-d0"}]}', '"x"',
    '{"replicas": [{"slot": "x-d0", "address": "127.0.0.1", "port": "80", "devices": [0]}]}',
    '{"replicas": [{"slot": 1, "address": "127.0.0.1", "port": 80, "devices": [0]}]}',
])
async def test_b8_a_damaged_state_file_is_a_warning(folder: Path, content: str) -> None:
    """Whatever stands in it: a warning, and the router starts."""
    (folder / "state.json").write_text(content)
    async with FleetServer(folder, [host(folder)], *state(folder), "--initial-replicas", "0") as server:
        await server.said("WARNING .*state.json")
        assert (await server.replicas())["capacity"]["owned"] == 0


async def test_without_the_state_file_what_still_runs_is_named_and_left_alone(folder: Path) -> None:
    """A lost state file costs no orphan without a name: the next launch on the slot says which process it is."""
    entry = host(folder, devices=[0])
    async with FleetServer(folder, [entry], "--state-file", str(folder / "a.json"), "--on-exit", "keep") as server:
        await server.until("x-d0", "ready")
        (identity,) = launched(folder).values()
    async with FleetServer(folder, [entry], "--state-file", str(folder / "b.json")) as server:
        await server.said(f"something already answers.* process {identity.pid}, launched there by")
    assert alive(identity)


async def test_two_owners_are_kept_apart_and_the_message_names_the_first(folder: Path) -> None:
    """A second router on one state file is refused, with pid and address of the first; nothing is adopted."""
    entry = host(folder)
    async with FleetServer(folder, [entry], *state(folder)) as first:
        await first.until("x-d0", "ready")
        second = FleetServer(folder, [entry], *state(folder))
        with pytest.raises(StateLocked, match=rf"process {os.getpid()} at {first.url}") as caught:
            await second.__aenter__()
        second._server.close()
        assert caught.value.exit_code == 1
        assert (await first.rows())["x-d0"]["state"] == "ready"


async def test_b7_a_taken_port_costs_no_launch(folder: Path) -> None:
    """The socket is bound first: exit 1, nothing is launched."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        (folder / "r.json").write_text(json.dumps({"hosts": [host(folder)]}))
        command = [sys.executable, "-m", "infera_cli", "serve", "--replicas", str(folder / "r.json"), "--host",
                   "127.0.0.1", "--port", port]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == 1
    assert "Cannot listen" in ran.stderr
    assert launched(folder) == {}


async def test_r137_a_missing_identity_file_stops_the_start_and_is_named(folder: Path) -> None:
    """Exit 1 before anything runs, with the path."""
    entry = host(folder, ssh="me@127.0.0.1", identity_file=str(folder / "no_key"))
    with pytest.raises(ConfigError, match="no_key cannot be read") as caught:
        FleetServer(folder, [entry])
    assert caught.value.exit_code == 1


def write(folder: Path, *, slot: str, port: int, devices: list[int] | None = None, **more: Any) -> None:
    """A state file with one record."""
    told = {"slot": slot, "host": "x", "address": "127.0.0.1", "port": port, **more}
    if "device" not in more:
        told["devices"] = devices or [0]
    (folder / "state.json").write_text(json.dumps({"replicas": [told]}))


async def health_server(port: int) -> asyncio.Server:
    """Something that answers 200 to everything."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b'{"object":"list","data":[{"id":"m"}]}'
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", port)


async def test_the_state_is_adopted_before_anything_is_launched(folder: Path) -> None:
    """Adoption needs moments, not the time of a load."""
    entry = host(folder, serve_args=["--ready-after", "1"])
    await running(folder, entry)
    begun = time.monotonic()
    async with FleetServer(folder, [entry], *state(folder)) as server:
        await server.until("x-d0", "ready", within=1)
        assert time.monotonic() - begun < 3
