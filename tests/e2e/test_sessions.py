"""That conversations stay where their prefix is, read from vLLM's own counters."""

from __future__ import annotations

import httpx
import pytest

from tests.e2e.conftest import Fleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

HITS = "vllm:prefix_cache_hits_total"
QUERIES = "vllm:prefix_cache_queries_total"


def turn(fleet: Fleet, session: str, messages: list[dict[str, str]]) -> httpx.Response:
    body = {"model": "tiny", "messages": messages, "max_tokens": 16, "temperature": 0, "ignore_eos": True}
    url = f"{fleet.router.url}/v1/chat/completions"
    answer = httpx.post(url, json=body, headers={"X-Session-Id": session}, timeout=60)
    assert answer.status_code == 200
    return answer


def converse(fleet: Fleet, session: str, turns: int) -> tuple[list[str], list[int]]:
    """Who answered each turn, and how many prompt tokens it found in its cache."""
    messages = [{"role": "system", "content": f"You are {session}. " + "Answer in the plainest words. " * 12}]
    workers, cached = [], []
    for number in range(turns):
        messages.append({"role": "user", "content": f"Question {number} about rivers and their sources."})
        answer = turn(fleet, session, messages)
        document = answer.json()
        messages.append({"role": "assistant", "content": document["choices"][0]["message"]["content"]})
        workers.append(answer.headers["x-infera-worker"])
        cached.append(document["usage"]["prompt_tokens_details"]["cached_tokens"])
    return workers, cached


def test_a_conversation_stays_with_its_prefix(fleet: Fleet) -> None:
    """All turns of a session go to one engine, which finds each earlier turn cached; the other sees none."""
    before = {name: (e.counter(QUERIES), e.counter(HITS)) for name, e in fleet.engines.items()}
    workers, cached = converse(fleet, "river-guide", turns=4)
    assert len(set(workers)) == 1
    home, other = fleet.engines[workers[0]], fleet.other(workers[0])
    assert cached[0] < cached[1] < cached[2] < cached[3]
    assert home.counter(HITS) - before[home.name][1] == sum(cached)
    assert home.counter(QUERIES) > before[home.name][0]
    assert other.counter(QUERIES) == before[other.name][0]


def test_sessions_are_spread_over_the_engines(fleet: Fleet) -> None:
    """New sessions take turns between idle engines, and each engine then hits its own prefixes."""
    before = {name: engine.counter(HITS) for name, engine in fleet.engines.items()}
    homes = [converse(fleet, f"guide-{number}", turns=2)[0][0] for number in range(4)]
    assert sorted(homes) == ["left", "left", "right", "right"]
    assert all(engine.counter(HITS) > before[name] for name, engine in fleet.engines.items())
