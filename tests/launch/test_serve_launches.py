"""`infera serve` with `hosts`: launching, readiness, early ends, capacity (replica-router §1.5, §1.7, §1.12)."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import httpx

from tests.support.fleet import FleetServer, alive, carriers, host, launched


async def test_a_launch_is_what_the_sheet_says(folder: Path) -> None:
    """The serving command: model, devices, address, logs, name, then the user's own words, verbatim."""
    given = ["--name", "a b", "--tpl", "{device} $HOME *", "--q", 'it\'s "ok"', "; touch pwned"]
    entry = host(folder, devices=[3, 1, 2, 0], devices_per_replica=2, served_model_name="tiny", serve_args=given,
                 env={"VISIBLE": "{devices}/{device}/{port}"})
    async with FleetServer(folder, [entry]) as server:
        row = await server.until("x-d3", "ready")
        told = json.loads((folder / "record-3.json").read_text())
    port = entry["port_base"] + 3
    assert told["argv"] == ["--model", "/m/tiny", "--devices", "3,1", "--host", "0.0.0.0", "--port", str(port),
                            "--show-startup-logs", "--served-model-name", "tiny", *given]
    assert told["env"]["VISIBLE"] == f"3,1/3/{port}"
    assert row["url"] == f"http://127.0.0.1:{port}"
    assert not list(folder.rglob("pwned"))


async def test_a_launched_replica_serves_and_is_listed_as_owned(folder: Path) -> None:
    """A replica takes requests once it is ready."""
    async with FleetServer(folder, [host(folder)]) as server, httpx.AsyncClient() as client:
        await server.until("x-d0", "ready")
        answer = await client.post(f"{server.url}/v1/chat/completions", json={"model": "tiny", "messages": []})
        listing = await server.replicas()
    assert answer.status_code == 200
    assert answer.headers["X-Infera-Worker"] == "x-d0"
    assert [(row["name"], row["ready"], row["owned"]) for row in listing["replicas"]] == [("x-d0", True, True)]
    assert listing["capacity"] == {"owned": 1, "ceiling": 2, "free_slots": ["x-d1"]}


async def test_a11_the_log_directory_is_made_parents_included(folder: Path) -> None:
    """The first launch finds no log directory, and makes it."""
    entry = host(folder, log_dir=str(folder / "deep" / "er" / "logs dir"))
    async with FleetServer(folder, [entry]) as server:
        await server.until("x-d0", "ready")
    assert "the stand-in starts" in (folder / "deep" / "er" / "logs dir" / "x-d0.log").read_text()


async def test_r145_ready_before_the_timeout_is_ready(folder: Path) -> None:
    """(a) A load that ends just before --launch-timeout is none the worse."""
    entry = host(folder, serve_args=["--ready-after", "1.5"])
    async with FleetServer(folder, [entry], "--launch-timeout", "4") as server:
        assert (await server.until("x-d0", "loading"))["ready"] is False
        await server.until("x-d0", "ready")


async def test_r145_a13_never_ready_is_stopped_and_the_message_helps(folder: Path) -> None:
    """(b) Stopped at the time-out, which is named with its flag and the log; the slot can be launched again."""
    entry = host(folder, devices=[0], serve_args=["--ready-after", "60"])
    async with FleetServer(folder, [entry], "--launch-timeout", "1.5", "--initial-replicas", "0") as server:
        begun = time.monotonic()
        assert (await server.post()).status_code == 202
        identity = launched(folder)["x-d0"]
        row = await server.until("x-d0", "free")
        assert 1.4 < time.monotonic() - begun < 20  # not the 60 s it would need
        assert "--launch-timeout 1.5 s" in row["error"]
        found = await server.said(r"launch failed.*raise that.*x-d0\.log")
        assert found
        assert not alive(identity)
        assert (await server.post()).status_code == 202


async def test_r145_b38_an_early_end_is_noticed_with_its_status_and_log(folder: Path) -> None:
    """(c) An engine that dies at load ends the launch at once; the log's end and what it means are shown."""
    entry = host(folder, devices=[0], serve_args=["--die-after", "0.8", "--ready-after", "60", "--die-with", "3"])
    async with FleetServer(folder, [entry], "--launch-timeout", "30", "--initial-replicas", "0") as server:
        begun = time.monotonic()
        assert (await server.post()).status_code == 202
        row = await server.until("x-d0", "free", within=15)
        assert time.monotonic() - begun < 15  # half of --launch-timeout
        assert "status 3" in row["error"]
        assert "not enough memory" in row["error"]
        await server.said("CUDA out of memory")
        assert (await server.post()).status_code == 202


async def test_r145_unwell_while_loading_is_not_routable(folder: Path) -> None:
    """(d) An open port whose /health says 503 is not ready."""
    entry = host(folder, serve_args=["--unwell-for", "1.2"])
    async with FleetServer(folder, [entry]) as server, httpx.AsyncClient() as client:
        await server.until("x-d0", "loading")
        assert (await client.get(f"{server.url}/health")).status_code == 503
        begun = time.monotonic()
        await server.until("x-d0", "ready")
        assert time.monotonic() - begun > 0.5


async def test_r136_b38_a_missing_interpreter_is_502_with_what_the_machine_said(folder: Path) -> None:
    """The command cannot be found: 502 names it and status 127, and the slot is free."""
    entry = host(folder, python="/opt/none/bin/python3")
    async with FleetServer(folder, [entry], "--initial-replicas", "0") as server:
        answer = await server.post()
        listing = await server.replicas()
    assert answer.status_code == 502
    assert answer.json()["object"] == "error"
    assert "127" in answer.json()["message"]
    assert "/opt/none/bin/python3" in answer.json()["message"]
    assert listing["capacity"]["owned"] == 0


async def test_r131_a26_an_engine_that_ends_at_once_is_502_whatever_it_prints(folder: Path) -> None:
    """Five MiB on each stream and status 3 within moments: known at once, all of it in the log."""
    command = ["/bin/sh", "-c", "head -c 5242880 /dev/zero; head -c 5242880 /dev/zero >&2; exit 3"]
    entry = host(folder, engine="custom", command=command)
    async with FleetServer(folder, [entry], "--initial-replicas", "0") as server:
        async with asyncio.timeout(10):
            answer = await server.post()
        assert answer.status_code == 502
        assert "status 3" in answer.json()["message"]
        assert (folder / "logs" / "x-d0.log").stat().st_size == 10 << 20
        assert (await server.replicas())["capacity"]["free_slots"] == ["x-d0", "x-d1"]


async def test_b2_a_missing_workdir_is_502(folder: Path) -> None:
    """A working directory that cannot be entered fails the launch, and says so."""
    entry = host(folder, workdir=str(folder / "gone"))
    async with FleetServer(folder, [entry], "--initial-replicas", "0") as server:
        answer = await server.post()
    assert answer.status_code == 502
    assert "cannot enter the working directory" in answer.json()["message"]


async def test_b4_other_braces_in_env_and_wrapper_are_left_alone(folder: Path) -> None:
    """JSON in an environment value arrives as it is; placeholders beside it are filled in."""
    entry = host(folder, env={"CONF": '{"a": {"b": [1]}, "d": "{device}"}', "EMPTY": "{}", "DOUBLE": "{{x}}"})
    async with FleetServer(folder, [entry]) as server:
        await server.until("x-d0", "ready")
    env = json.loads((folder / "record-0.json").read_text())["env"]
    assert (env["CONF"], env["EMPTY"], env["DOUBLE"]) == ('{"a": {"b": [1]}, "d": "0"}', "{}", "{{x}}")


async def test_a_wrapper_gets_the_command_as_one_quoted_argument(folder: Path) -> None:
    """A broker that hands on and leaves with status 0 is no failed launch."""
    broker = folder / "task-submit"
    broker.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >"$BROKER_LOG"\nsetsid sh -c "$4" &\nexit 0\n')
    broker.chmod(0o755)
    entry = host(folder, devices=[4, 5], devices_per_replica=2, serve_args=["--name", "a b"],
                 launch_wrapper=[str(broker), "--device", "{devices}", "--run"],
                 env={"BROKER_LOG": str(folder / "broker.log")})
    async with FleetServer(folder, [entry]) as server:
        await server.until("x-d4", "ready")
        words = (folder / "broker.log").read_text().splitlines()
        nonce = launched(folder)["x-d4"].nonce
        assert words[:3] == ["--device", "4,5", "--run"]
        assert words[3].startswith(f"{sys.executable} -m pypto_serving.cli --model /m/tiny --devices 4,5")
        assert words[3].endswith("--name 'a b'")
        assert (await server.delete("x-d4")).status_code == 200
        assert carriers(nonce) == []


async def test_r148_a31_launches_at_the_same_time_get_different_devices(folder: Path) -> None:
    """Five at once on two slots: two are launched, three refused; the slot of a stop under way is not given away."""
    async with FleetServer(folder, [host(folder)], "--initial-replicas", "0") as server:
        answers = await asyncio.gather(*(server.post() for _ in range(5)))
        assert sorted(answer.status_code for answer in answers) == [202, 202, 409, 409, 409]
        assert {answer.json()["name"] for answer in answers if answer.status_code == 202} == {"x-d0", "x-d1"}
        full = next(answer.json() for answer in answers if answer.status_code == 409)
        assert full["capacity"] == {"owned": 2, "ceiling": 2, "free_slots": []}
        assert full["object"] == "error"
        await server.until("x-d0", "ready")
        stop = asyncio.create_task(server.delete("x-d0"))
        again = asyncio.create_task(server.delete("x-d0"))
        await asyncio.sleep(0.05)
        assert (await server.post()).status_code == 409
        assert (await stop).status_code == 200
        assert (await again).status_code in (200, 404)
        assert (await server.post()).status_code == 202


async def test_r148_what_was_not_launched_here_is_not_stopped(folder: Path) -> None:
    """409 for a replica of the file, 404 for an unknown name."""
    static = [{"name": "other", "host": "127.0.0.1", "port": 9}]
    async with FleetServer(folder, [host(folder)], "--initial-replicas", "0", replicas=static) as server:
        assert (await server.delete("other")).status_code == 409
        assert (await server.delete("nope")).status_code == 404


async def test_b23_max_replicas_limits_what_is_offered(folder: Path) -> None:
    """Free slots above the ceiling are not listed, and not launched."""
    async with FleetServer(folder, [host(folder)], "--max-replicas", "1") as server:
        await server.until("x-d0", "ready")
        assert (await server.replicas())["capacity"] == {"owned": 1, "ceiling": 1, "free_slots": []}
        assert (await server.post()).status_code == 409


async def test_a_failing_launch_at_the_start_does_not_stop_the_server(folder: Path) -> None:
    """The server comes up, says what failed, and is unwell until something is ready."""
    async with FleetServer(folder, [host(folder, python="/none/python")]) as server, httpx.AsyncClient() as client:
        await server.said("launch failed: x-d0")
        assert (await client.get(f"{server.url}/health")).status_code == 503
        assert (await client.get(f"{server.url}/livez")).status_code == 200


async def test_a_full_or_unwritable_log_place_is_502(folder: Path) -> None:
    """Where the log cannot be written nothing is started."""
    (folder / "file").write_text("")
    entry = host(folder, log_dir=str(folder / "file" / "logs"))
    async with FleetServer(folder, [entry], "--initial-replicas", "0") as server:
        answer = await server.post()
        assert answer.status_code == 502
        assert "cannot make the log folder" in answer.json()["message"]
        assert (await server.replicas())["capacity"]["owned"] == 0


async def test_a_taken_port_is_named_before_anything_is_launched(folder: Path) -> None:
    """What answers at a slot's address already is not mistaken for the replica."""
    entry = host(folder)
    stranger = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", entry["port_base"])
    async with stranger, FleetServer(folder, [entry], "--initial-replicas", "0") as server:
        answer = await server.post("x-d0")
    assert answer.status_code == 502
    assert "something already answers" in answer.json()["message"]
    assert launched(folder) == {}


async def test_the_admin_token_guards_all_three_routes(folder: Path) -> None:
    """Without the token: 401, and nothing happens."""
    env = {"INFERA_ADMIN_TOKEN": "sesame"}
    async with FleetServer(folder, [host(folder)], env=env) as server, httpx.AsyncClient() as client:
        for method, path in (("GET", "/replicas"), ("POST", "/replicas"), ("DELETE", "/replicas/x-d0")):
            assert (await client.request(method, server.url + path)).status_code == 401
        good = await client.get(f"{server.url}/replicas", headers={"Authorization": "Bearer sesame"})
        assert good.status_code == 200
        assert "INFERA_ADMIN_TOKEN" not in json.dumps(good.json())
