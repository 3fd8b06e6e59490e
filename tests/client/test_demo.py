"""The conversations of `infera demo`, against simulated engines and against answers that go wrong."""

from __future__ import annotations

import httpx
import pytest

from infera_cli.client.demo import Answered, Asked, Progress, converse, summarize
from infera_cli.launch.sim import SimEngines


async def all_of(base_url: str, **options: object) -> list[Progress]:
    """Everything a run yields."""
    return [step async for step in converse(base_url, **options)]  # type: ignore[arg-type]


async def test_conversations_run_to_their_end_and_reuse_their_prefix() -> None:
    """Each turn is asked and then answered, later turns find most of their prompt in the cache."""
    async with SimEngines() as engines:
        (engine,) = await engines.start(1, options={"time-scale": 20})
        steps = await all_of(engine.url, conversations=3, turns=3, max_tokens=16)
    asked = [(step.conversation, step.turn) for step in steps if isinstance(step, Asked)]
    answered = [step for step in steps if isinstance(step, Answered)]
    assert sorted(asked) == sorted((step.conversation, step.turn) for step in answered) == [
        (conversation, turn) for conversation in (1, 2, 3) for turn in (1, 2, 3)]
    assert [step.error for step in answered] == [None] * 9
    assert all(step.cached and step.cached / step.prompt > 0.7 for step in answered if step.turn > 1)
    assert all(0 < step.ttft <= step.latency for step in answered)
    summary = summarize(answered)
    assert (summary.turns, summary.errors) == (9, 0)
    assert summary.reuse is not None
    assert summary.reuse > 0.5


def scripted(*answers: httpx.Response) -> tuple[httpx.MockTransport, list[httpx.Request]]:
    """A network that gives these answers in turn, and what it was asked."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answers[len(seen) - 1]

    return httpx.MockTransport(answer), seen


def stream(body: str, worker: str = "w1", session: str = "minted") -> httpx.Response:
    """A streamed answer as the router relays it."""
    return httpx.Response(200, text=body, headers={"X-Infera-Worker": worker, "X-Session-Id": session})


HELLO = ': hi\n\ndata: {"choices":[{"delta":{"content":"Hello"}}]}\n\n'
USAGE = 'data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":1}}\n\n'
DONE = "data: [DONE]\n\n"


async def test_the_minted_session_and_the_answer_go_back() -> None:
    """The id from the first answer is sent with the second turn, whose prompt holds the first answer."""
    network, seen = scripted(stream(HELLO + USAGE + DONE), stream(HELLO + USAGE + DONE, worker="w2"))
    steps = await all_of("http://x", conversations=1, turns=2, model="m", transport=network)
    assert [request.headers.get("X-Session-Id") for request in seen] == [None, "minted"]
    assert b'{"role":"assistant","content":"Hello"}' in seen[1].content
    assert b'"model":"m"' in seen[0].content
    assert [(step.worker, step.prompt, step.cached) for step in steps if isinstance(step, Answered)] == [
        ("w1", 10, None), ("w2", 10, None)]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(503, json={"error": {"message": "nobody"}}), 'HTTP 503: {"error":{"message":"nobody"}}'),
        (stream(HELLO), "the stream ended early"),
        (stream('data: {"error":{"message":"engine died"}}\n\n' + DONE), "engine died"),
        (stream("data: {\n\n"), "the stream holds something that is not JSON"),
    ],
)
async def test_a_failure_is_a_value_and_ends_its_conversation(answer: httpx.Response, error: str) -> None:
    """A refused, cut, failed or garbled answer is told, and no further turn is asked."""
    network, seen = scripted(answer)
    steps = await all_of("http://x", conversations=1, turns=3, transport=network)
    assert [step.error for step in steps if isinstance(step, Answered)] == [error]
    assert len(seen) == 1


async def test_closing_the_iterator_stops_everything() -> None:
    """Whoever stops listening leaves nothing running."""
    async with SimEngines() as engines:
        (engine,) = await engines.start(1, options={"itl-ms": 200})
        steps = converse(engine.url, conversations=2, turns=4)
        assert isinstance(await anext(steps), Asked)
        await steps.aclose()  # type: ignore[attr-defined]
        async with httpx.AsyncClient(verify=False) as client:
            while (await client.get(f"{engine.url}/sim/stats")).json()["live"]:
                pass
            assert (await client.get(f"{engine.url}/sim/stats")).json()["running"] == 0


def test_summary_adds_up_by_worker() -> None:
    """Shares, conversations, reuse and percentiles come from what was answered well."""
    turns = [
        Answered(conversation=number, turn=1, worker=worker, prompt=100, cached=cached, ttft=0.1 * number,
                 latency=number)
        for number, worker, cached in ((1, "b", 50), (2, "a", 0), (3, "b", 100))
    ]
    summary = summarize([*turns, Answered(conversation=4, turn=1, worker="a", error="no")])
    assert [(share.worker, share.turns, round(share.part, 2), share.conversations) for share in summary.shares] == [
        ("a", 1, 0.33, 1), ("b", 2, 0.67, 2)]
    assert (summary.turns, summary.errors, summary.reuse) == (3, 1, 0.5)
    assert summary.latency_p50 == pytest.approx(2.0)
    assert summary.latency_p90 == pytest.approx(2.8)
    assert summary.ttft_p50 == pytest.approx(0.2)


def test_summary_of_nothing_has_no_numbers() -> None:
    """Without an answer there is nothing to average."""
    summary = summarize([])
    assert (summary.turns, summary.shares, summary.reuse, summary.latency_p50) == (0, (), None, None)
