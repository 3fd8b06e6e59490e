"""What etcd, two launched vLLM workers and two servers make of each other, all real (infera-wire §1, §9)."""

from __future__ import annotations

import threading

import httpx
import pytest

from tests.e2e.discovery.conftest import World
from tests.e2e.processes import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


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
        lambda: [row["outstanding"] > 0 for row in world.servers[0].workers()] == [True, True],
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
