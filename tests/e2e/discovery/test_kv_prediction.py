"""What `kv-aware` expects of real caches is what vLLM's own counters say, and it beats policies that do not look
(infera-wire §4.4, engines §7)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.e2e.discovery.conftest import KV_AWARE, Server, World
from tests.e2e.processes import COUNTER, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

BLOCK, WORKERS = 32, 2
CONVERSATIONS, TURNS = 4, 4
HITS, ASKED = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
EXPECTED = re.compile(r'^infera_kv_expected_cached_tokens_total\{worker_id="([^"]+)"\} ([0-9.e+]+)$', re.MULTILINE)
WORDS = ("river", "stone", "cloud", "paper", "engine", "window", "garden", "silver", "number", "letter", "answer",
         "market", "bridge", "winter")  # fmt: skip

Counts = dict[str, float]
"""By worker."""


class Talk:
    """One conversation: a system text of its own, and what was said so far."""

    def __init__(self, name: int) -> None:
        text = " ".join(f"{name} {word} {place}" for place, word in enumerate(WORDS * 2))
        self.messages: list[dict[str, str]] = [{"role": "system", "content": text}]

    def turn(self, server: Server, number: int) -> None:
        said = " ".join(f"{word} {number}" for word in WORDS)
        self.messages.append({"role": "user", "content": said})
        body = {"model": "tiny", "messages": self.messages, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
        reply = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120)
        assert reply.status_code == 200, reply.text
        self.messages.append({"role": "assistant", "content": reply.json()["choices"][0]["message"]["content"]})


def traffic() -> Iterator[tuple[Talk, int]]:
    """All turns of all conversations, a round at a time, each round in another order."""
    talks = [Talk(number) for number in range(CONVERSATIONS)]
    for turn in range(TURNS):
        for place in range(CONVERSATIONS):
            yield talks[(place + turn) % CONVERSATIONS], turn


def engine_counts(world: World, name: str) -> Counts:
    """One of vLLM's own counters."""
    found = {}
    for row in world.servers[0].workers():
        text = httpx.get(f"{row['url']}/metrics", timeout=10).text
        found[row["worker_id"]] = sum(float(value) for key, value in COUNTER.findall(text) if key == name)
    return found


def expected(server: Server) -> Counts:
    """Tokens that this server expected to be cached so far."""
    return {worker: float(value) for worker, value in EXPECTED.findall(httpx.get(f"{server.url}/metrics").text)}


def rise(before: Counts, after: Counts) -> Counts:
    return {worker: count - before.get(worker, 0.0) for worker, count in after.items()}


def views(server: Server, world: World) -> list[int]:
    """Blocks that the server knows of each worker."""
    rows = sorted(row["worker_id"] for row in world.servers[0].workers())
    return [
        httpx.get(f"{server.url}/v1/admin/cache-view/{worker}", timeout=5).json()["block_count"] for worker in rows
    ]


def forget(world: World) -> None:
    """Cold caches on both workers; an event of that leaves with the next step, hence a prompt under one block."""
    for row in world.servers[0].workers():
        httpx.post(f"{row['url']}/reset_prefix_cache", timeout=10).raise_for_status()
        short: dict[str, Any] = {"model": "tiny", "prompt": "hi", "max_tokens": 1}
        httpx.post(f"{row['url']}/v1/completions", json=short, timeout=60).raise_for_status()
    for server in world.pair(KV_AWARE):
        eventually(
            lambda: views(server, world) == [0] * WORKERS,  # noqa: B023
            within=20, otherwise=lambda: f"{views(server, world)} {server.last_words()}",  # noqa: B023
        )  # fmt: skip


def in_step(world: World) -> None:
    """Until both servers know the same of both workers."""
    left, right = world.pair(KV_AWARE)
    eventually(
        lambda: views(left, world) == views(right, world),
        within=20, otherwise=lambda: f"{views(left, world)} {views(right, world)} {left.last_words()}",
    )  # fmt: skip


@dataclass
class Seen:
    """What the traffic did. `turns` are each worker's (tokens expected, tokens found), turn by turn."""

    share: float
    turns: list[dict[str, tuple[float, float]]]


def run(world: World, policy: str, *, watch: bool = False) -> Seen:
    """The traffic on alternating servers of `policy`, from cold caches, by vLLM's counters."""
    servers = world.pair(policy)
    forget(world)
    first, asked = engine_counts(world, HITS), engine_counts(world, ASKED)
    hits, turns = first, []
    for number, (talk, turn) in enumerate(traffic()):
        server = servers[number % 2]
        if not watch:
            talk.turn(server, turn)
            continue
        in_step(world)
        thought = expected(server)
        talk.turn(server, turn)
        now, wanted = engine_counts(world, HITS), rise(thought, expected(server))
        turns.append({worker: (wanted.get(worker, 0.0), count) for worker, count in rise(hits, now).items()})
        hits = now
    found, of = rise(first, engine_counts(world, HITS)), rise(asked, engine_counts(world, ASKED))
    return Seen(sum(found.values()) / sum(of.values()), turns)


@pytest.fixture(scope="module")
def kv_aware(world: World) -> Seen:
    return run(world, KV_AWARE, watch=True)


def test_vllm_finds_in_its_cache_what_two_routers_expected(kv_aware: Seen) -> None:
    """Turn by turn, each worker's own hits rise by what was expected, within a block a request."""
    apart = [abs(wanted - found) for turn in kv_aware.turns for wanted, found in turn.values()]
    assert max(apart) <= BLOCK, kv_aware.turns
    assert sum(found for turn in kv_aware.turns for _, found in turn.values()) > 50 * BLOCK


@pytest.mark.parametrize("policy", ["round-robin", "least-loaded"])
def test_vllm_finds_more_than_under_a_policy_that_does_not_look(world: World, kv_aware: Seen, policy: str) -> None:
    """The same traffic, each from cold caches, by vLLM's own counters."""
    assert kv_aware.share > 1.2 * run(world, policy).share
