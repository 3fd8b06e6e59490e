"""etcd, two launched vLLM workers and two servers, all real (infera-wire §1, §9)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.e2e.processes import ENGINE_ENVIRONMENT, ENGINE_START, Process, eventually, free_port
from tests.support import tinymodel
from tests.support.etcd import Etcd

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

INFERA = str(Path(sys.executable).with_name("infera"))
TINY = [
    "--served-model-name", "tiny", "--load-format", "dummy", "--dtype", "float32", "--max-model-len", "2048",
    "--enforce-eager", "--block-size", "32", "--enable-prefix-caching", "--enable-prompt-tokens-details",
]  # fmt: skip


class Server(Process):
    """`infera serve` on etcd."""

    def __init__(self, name: str, etcd: Etcd, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [
            INFERA, "serve", "--etcd-endpoint", etcd.address, "--router-policy", "round-robin",
            "--host", "127.0.0.1", "--port", str(self.port),
        ]  # fmt: skip
        super().__init__(name, command, folder / f"{name}.log", {})

    def workers(self) -> list[dict[str, Any]]:
        """What it lists."""
        try:
            found: list[dict[str, Any]] = httpx.get(f"{self.url}/v1/workers", timeout=5).json()["workers"]
        except httpx.HTTPError:
            return []
        return found

    def ask(self, tokens: int = 8) -> httpx.Response:
        body = {"model": "tiny", "prompt": "rivers " * 40, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        return httpx.post(f"{self.url}/v1/completions", json=body, timeout=120)


class World(NamedTuple):
    """All of it."""

    etcd: Etcd
    workers: list[Process]
    servers: list[Server]

    def see(self, count: int, within: float) -> None:
        """Wait until every server lists so many workers that are ready."""
        for server in self.servers:
            eventually(
                lambda: sum(row["status"] == "active" for row in server.workers()) == count,  # noqa: B023
                within=within, otherwise=lambda: "\n".join(p.last_words() for p in (*self.workers, *self.servers)),
            )  # fmt: skip


@pytest.fixture(scope="module")
def world(vllm_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("discovery")
    model = folder / "tiny"
    subprocess.run([vllm_python, str(Path(tinymodel.__file__)), str(model)], check=True, timeout=120)
    etcd = Etcd(folder)
    etcd.start()
    launch = [
        INFERA, "launch", "vllm", "--etcd-endpoint", etcd.address, "--engine-python", vllm_python,
        "--host", "127.0.0.1", "--model", str(model), *TINY,
    ]  # fmt: skip
    workers = [Process(name, launch, folder / f"{name}.log", ENGINE_ENVIRONMENT) for name in ("one", "two")]
    servers = [Server(name, etcd, folder) for name in ("left", "right")]
    made = World(etcd, workers, servers)
    for process in (*workers, *servers):
        process.start()
    try:
        made.see(2, within=ENGINE_START)
        yield made
    finally:
        for process in (*servers, *workers):
            process.stop()
        etcd.stop()


def test_both_servers_know_both_workers(world: World) -> None:
    """The same rows; the block size and the event address are what vLLM itself says."""
    left, right = (sorted(row["worker_id"] for row in server.workers()) for server in world.servers)
    assert left == right
    for row in world.servers[0].workers():
        assert (row["model_name"], row["engine"], row["kv_block_size"]) == ("tiny", "vllm", 32)
        said = httpx.get(f"{row['url']}/kv_event_sources", timeout=10).json()["0"]
        assert said["endpoint"].rpartition(":")[2] == row["kv_events_endpoint"].rpartition(":")[2]
        assert row["kv_events_endpoint"].startswith("tcp://127.0.0.1:")


def test_requests_are_spread_and_survive_an_outage_of_etcd(world: World) -> None:
    """Killed and back under traffic: every request is answered, by both workers."""
    served = [server.ask().headers["x-infera-worker"] for server in world.servers for _ in range(4)]
    world.etcd.kill()
    replies = [server.ask() for server in world.servers for _ in range(4)]
    world.etcd.start()
    assert [reply.status_code for reply in replies] == [200] * 8
    assert len({*served, *(reply.headers["x-infera-worker"] for reply in replies)}) == 2
    world.see(2, within=30)


def test_a_worker_told_to_stop_finishes_what_it_has(world: World) -> None:
    """SIGTERM while both generate: no answer is cut short, and what comes later goes to the other."""
    answers: list[httpx.Response] = []
    asking = [threading.Thread(target=lambda: answers.append(world.servers[0].ask(1500))) for _ in range(4)]
    for thread in asking:
        thread.start()
    eventually(
        lambda: sum(row["outstanding"] for row in world.servers[0].workers()) == 4,
        within=20, otherwise=world.servers[0].last_words,
    )  # fmt: skip
    going = world.workers[0]
    assert going.popen is not None
    going.popen.terminate()
    world.see(1, within=10)
    for thread in asking:
        thread.join(120)
    assert [answer.json()["usage"]["completion_tokens"] for answer in answers] == [1500] * 4
    assert len({answer.headers["x-infera-worker"] for answer in answers}) == 2
    assert going.popen.wait(60) == 0
    assert len({server.ask().headers["x-infera-worker"] for server in world.servers for _ in range(2)}) == 1
