"""Stopping launched replicas: who is signalled, and who never is (replica-router §1.6, §1.8; rulings 14)."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import psutil

from tests.support.fleet import FleetProcess, FleetServer, alive, carriers, host, launched

STAND_BY = "import sys, time; time.sleep(float(sys.argv[1]))"


async def test_a5_the_slot_is_free_when_port_and_processes_are_gone(folder: Path) -> None:
    """DELETE answers when nothing of the replica runs any more, and the slot takes a launch at once."""
    async with FleetServer(folder, [host(folder)]) as server:
        await server.until("x-d0", "ready")
        identity = launched(folder)["x-d0"]
        answer = await server.delete("x-d0")
        assert answer.json() == {"name": "x-d0", "stopped": True,
                                 "capacity": {"owned": 0, "ceiling": 2, "free_slots": ["x-d0", "x-d1"]}}
        assert carriers(identity.nonce) == []
        assert (await server.post()).json()["name"] == "x-d0"


async def test_an_engine_that_ignores_term_is_killed_after_the_grace(folder: Path) -> None:
    """TERM, then KILL to the whole group; the slot is free afterwards."""
    entry = host(folder, serve_args=["--ignore-term"])
    async with FleetServer(folder, [entry]) as server:
        await server.until("x-d0", "ready")
        shorten_grace(server)
        identity = launched(folder)["x-d0"]
        assert (await server.delete("x-d0")).status_code == 200
        assert carriers(identity.nonce) == []
        await server.said(f"process .*{identity.pid}.* outlived")


async def test_children_that_outlive_their_engine_are_ended_too(folder: Path) -> None:
    """A child that ignores TERM and lost its parent is still known for ours."""
    entry = host(folder, serve_args=["--child", "60"])
    async with FleetServer(folder, [entry]) as server:
        await server.until("x-d0", "ready")
        shorten_grace(server)
        nonce = launched(folder)["x-d0"].nonce
        assert len(carriers(nonce)) == 5, "the runner, who keeps the log short and his nap, the engine, its child"
        assert (await server.delete("x-d0")).status_code == 200
        assert carriers(nonce) == []


async def test_r140_a_stop_ends_that_replica_and_nobody_who_looks_like_it(folder: Path) -> None:
    """Ports 8001 and 80010, and a stranger whose words hold `--port 8001`: only the replica's own group ends."""
    entry = host(folder, devices=[0, 9])
    port = entry["port_base"]
    stranger = subprocess.Popen([sys.executable, "-c", STAND_BY, "60", "pypto_serving.cli", "--port", str(port)])
    longer = subprocess.Popen([sys.executable, "-c", STAND_BY, "60", "pypto_serving.cli", "--port", f"{port}0"])
    try:
        async with FleetServer(folder, [entry], "--initial-replicas", "2") as server:
            await server.until("x-d0", "ready")
            await server.until("x-d9", "ready")
            assert (await server.delete("x-d0")).status_code == 200
            assert alive(launched(folder)["x-d9"])
            assert not alive(launched(folder)["x-d0"])
            assert (stranger.poll(), longer.poll()) == (None, None)
    finally:
        for process in (stranger, longer):
            process.kill()
            process.wait()


async def test_r142_neither_a_stop_nor_the_end_of_the_router_walks_up_the_tree(folder: Path) -> None:
    """Whoever started the router, and what else they run, live on; so do replicas that were not launched."""
    sleeper = subprocess.Popen([sys.executable, "-c", STAND_BY, "60"])
    wrapper = folder / "wrap"
    wrapper.write_text('#!/bin/sh\nsleep 60 &\necho $! >"$0.pid"\nexec sh -c "$1"\n')
    wrapper.chmod(0o755)
    entry = host(folder, launch_wrapper=[str(wrapper)])
    async with FleetProcess(folder, [entry]) as server:
        await server.until("x-d0", "ready")
        assert (await server.delete("x-d0")).status_code == 200
        assert server.running
        assert sleeper.poll() is None
        assert (await server.post()).status_code == 202
        assert await server.stop(within=20) == 0
    assert sleeper.poll() is None
    sleeper.kill()
    sleeper.wait()
    for identity in launched(folder).values():
        assert carriers(identity.nonce) == []


async def test_b35_a_users_stop_command_is_run_expanded_and_without_workdir(folder: Path) -> None:
    """B35: the stop needs no working directory, and its words arrive as they are."""
    stopper = folder / "stop it"
    stopper.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$0.said"\nread -r _ pid _ <"$1"; kill -s TERM -- "-$pid"\n')
    stopper.chmod(0o755)
    workdir = folder / "work"
    workdir.mkdir()
    record = folder / "logs" / "x-d0.run"
    words = [str(stopper), str(record), "{port}", "{devices}", "$HOME *"]
    entry = host(folder, workdir=str(workdir), stop_command=words)
    async with FleetServer(folder, [entry]) as server:
        await server.until("x-d0", "ready")
        workdir.rmdir()
        identity = launched(folder)["x-d0"]
        assert (await server.delete("x-d0")).status_code == 200
        assert not alive(identity)
    said = Path(f"{stopper}.said").read_text().splitlines()
    assert said[:4] == [str(record), str(entry["port_base"]), "0", "$HOME *"]


async def test_a_failing_stop_command_is_a_warning_and_the_group_is_killed(folder: Path) -> None:
    """The sequence goes on whatever the user's command says."""
    entry = host(folder, stop_command=["/bin/sh", "-c", "echo cannot; exit 9"])
    async with FleetServer(folder, [entry]) as server:
        await server.until("x-d0", "ready")
        shorten_grace(server)
        identity = launched(folder)["x-d0"]
        assert (await server.delete("x-d0")).status_code == 200
        await server.said("WARNING x-d0: /bin/sh ended with status 9: cannot")
        assert not alive(identity)


async def test_a_drain_waits_for_open_requests(folder: Path) -> None:
    """DELETE gives no new work, and stops only when the stream has ended."""
    entry = host(folder, engine="sim", served_model_name="m", env={"PYTHONPATH": ""},
                 serve_args=["--host", "127.0.0.1", "--itl-ms", "30", "--output-tokens", "30"])
    async with FleetServer(folder, [entry]) as server, httpx.AsyncClient(timeout=30) as client:
        await server.until("x-d0", "ready")
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 40}
        async with client.stream("POST", f"{server.url}/v1/chat/completions", json=body) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            stop = asyncio.create_task(server.delete("x-d0"))
            rest = [line async for line in lines]
        assert rest[-2:] == ["data: [DONE]", ""] or "data: [DONE]" in rest
        assert (await stop).status_code == 200


async def test_an_orderly_end_stops_what_was_launched(folder: Path) -> None:
    """SIGTERM without a state file: exit 0, and no engine is left."""
    async with FleetProcess(folder, [host(folder)]) as server:
        await server.until("x-d0", "ready")
        nonce = launched(folder)["x-d0"].nonce
        assert await server.stop(within=20) == 0
    assert carriers(nonce) == []


async def test_a_launch_under_way_at_the_end_is_awaited_and_stopped(folder: Path) -> None:
    """A replica that is still loading when the router ends is no orphan."""
    entry = host(folder, serve_args=["--ready-after", "60"])
    async with FleetProcess(folder, [entry]) as server:
        await server.said("launching on local")
        assert await server.stop(within=20) == 0
    for identity in launched(folder).values():
        assert carriers(identity.nonce) == []


async def test_a_second_signal_ends_at_once_and_stops_nothing(folder: Path) -> None:
    """The first waits for an engine that does not end; the second leaves it, and the state file names it."""
    state = folder / "state.json"
    entry = host(folder, serve_args=["--ignore-term"])
    async with FleetProcess(folder, [entry], "--state-file", str(state), "--on-exit", "stop") as server:
        await server.until("x-d0", "ready")
        identity = launched(folder)["x-d0"]
        server.signal(signal.SIGTERM)
        await server.said("x-d0 left the fleet")
        server.signal(signal.SIGTERM)
        assert await server.stop(within=5) == 0
    assert alive(identity)
    recorded = json.loads(state.read_text())["replicas"]
    assert [(entry["slot"], entry["process"]["pid"]) for entry in recorded] == [("x-d0", identity.pid)]


async def test_kept_replicas_go_on_and_the_last_line_says_how_to_stop_them(folder: Path) -> None:
    """With --state-file the default is to keep."""
    async with FleetProcess(folder, [host(folder)], "--state-file", str(folder / "state.json")) as server:
        await server.until("x-d0", "ready")
        identity = launched(folder)["x-d0"]
        assert await server.stop(within=20) == 0
        assert server.out[-1].startswith("1 launched replicas keep running; `infera fleet down ")
    assert alive(identity)


async def test_an_engine_inherits_neither_descriptors_nor_secrets_of_the_router(folder: Path) -> None:
    """Only its log is open, and no variable of infera's own is in its environment."""
    env = {"INFERA_API_KEY": "hush"}
    async with FleetProcess(folder, [host(folder)], env=env) as server:
        await server.until("x-d0", "ready")
        pid = launched(folder)["x-d0"].pid
        opened = {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        told = psutil.Process(pid).environ()
    assert opened == {"/dev/null", str(folder / "logs" / "x-d0.log")}
    assert {name for name in told if name.startswith("INFERA_")} == {"INFERA_LAUNCH_ID"}


def shorten_grace(server: FleetServer) -> None:
    """Half a second instead of thirty between TERM and KILL."""
    launching = server._server.launching
    assert launching is not None
    object.__setattr__(launching._running.processes._rules, "grace", 0.5)
