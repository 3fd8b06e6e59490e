"""`infera fleet` starts real vLLM replicas over SSH, a server adopts them, and nothing is left in the end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.processes import ENGINE_ENVIRONMENT, ENGINE_START, answers, eventually
from tests.support import tinymodel
from tests.support.fleet import carriers, launched, port_base, swept
from tests.support.sshd import Home, Sshd, free_port

INFERA = str(Path(sys.executable).with_name("infera"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with swept(tmp_path) as folder:
        yield folder


def replica_file(folder: Path, python: str, model: Path) -> tuple[Path, int]:
    """A replica file with one machine and two slots, and its first port."""
    port = port_base()
    host = {
        "name": "cpu", "ssh": "gpu1", "engine": "vllm", "devices": "0-1", "port_base": port, "model": str(model),
        "served_model_name": "tiny", "python": python, "log_dir": str(folder / "logs"),
        "env": {**ENGINE_ENVIRONMENT, "CUDA_VISIBLE_DEVICES": ""},
        "serve_args": ["--load-format", "dummy", "--dtype", "float32", "--max-model-len", "2048", "--enforce-eager",
                       "--host", "127.0.0.1", "--block-size", "32"],
    }  # fmt: skip
    path = folder / "fleet.json"
    path.write_text(json.dumps({"hosts": [host]}))
    return path, port


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_replicas_over_ssh_are_launched_adopted_served_and_stopped(place: Path, vllm_python: str) -> None:
    """`fleet up` over SSH, `serve --state-file` adopts both, a request is answered, `fleet down` leaves nothing."""
    model = place / "tiny"
    subprocess.run([vllm_python, str(Path(tinymodel.__file__)), str(model)], check=True, timeout=120)
    home = Home(place / "home")
    file, port = replica_file(place, vllm_python, model)
    state = str(place / "state.json")

    def infera(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([INFERA, *words], env=home.env, capture_output=True, text=True, timeout=600, check=False)

    with Sshd(place / "gpu1", authorized=[home.key]) as server:
        home.alias("gpu1", server)
        home.trust(server)
        up = infera("fleet", "up", str(file), "--state-file", state, "--timeout", str(ENGINE_START), "-o", "json")
        assert up.returncode == 0, up.stderr
        assert [row["became"] for row in json.loads(up.stdout)["slots"]] == ["ready", "ready"]
        records = launched(place)
        assert set(records) == {"cpu-d0", "cpu-d1"}

        serve_and_ask(home, file, state)
        assert all(carriers(identity.nonce) for identity in records.values()), "serve kept them"

        down = infera("fleet", "down", str(file), "--state-file", state, "--yes")
        assert down.returncode == 0, down.stderr
    for identity in records.values():
        assert carriers(identity.nonce) == []
        assert sessions(identity.pid) == []
    for offset in (0, 1):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port + offset)) != 0
    assert json.loads(Path(state).read_text())["replicas"] == []


def serve_and_ask(home: Home, file: Path, state: str) -> None:
    """A server adopts the replicas, both serve a request, and it ends in order."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [INFERA, "serve", "--replicas", str(file), "--state-file", state, "--host", "127.0.0.1",
               "--port", str(port), "--health-interval", "1"]  # fmt: skip
    log = file.with_name("serve.log")
    with log.open("wb") as out:
        router = subprocess.Popen(command, env=home.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        eventually(lambda: answers(f"{url}/health"), within=60, otherwise=log.read_text)
        slots: list[dict[str, Any]] = httpx.get(f"{url}/replicas", timeout=10).json()["slots"]
        assert [(row["state"], row["drifted"]) for row in slots] == [("ready", False), ("ready", False)]
        served = set()
        for number in range(4):
            body = {"model": "tiny", "prompt": f"hello {number}", "max_tokens": 4, "temperature": 0}
            answer = httpx.post(f"{url}/v1/completions", json=body, timeout=120)
            assert answer.status_code == 200, answer.text
            assert answer.json()["choices"][0]["finish_reason"] == "length"
            served.add(answer.headers["X-Infera-Worker"])
        assert served == {"cpu-d0", "cpu-d1"}
    finally:
        router.send_signal(signal.SIGTERM)
        assert router.wait(60) == 0, log.read_text()


def sessions(leader: int) -> list[int]:
    """Living processes of the session that a launch had."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid = int(stat.parent.name)
            fields = stat.read_text().rpartition(") ")[2].split()
            if os.getsid(pid) == leader and fields[0] != "Z":
                found.append(pid)
        except (OSError, ProcessLookupError):
            continue
    return found
