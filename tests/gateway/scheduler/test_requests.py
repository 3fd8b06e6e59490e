"""Requests through the scheduler: extensions, affinity, errors, time-outs (replica-router §2.2, §2.7, §2.10)."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.gateway.scheduler.conftest import CHAT, Schedule, sent_body
from tests.support import raw
from tests.support.replies import chunked, error, unary, words
from tests.support.stub import Step

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_extensions_are_removed_and_the_rest_is_equal(schedule: Schedule) -> None:
    """The engine gets the body without x-inferact, all else as JSON unchanged."""
    setup = await schedule(1)
    answer = await setup.server.chat(priority=9, temperature=0.5, extra={"deep": [1, "é"]})
    assert answer.status == 200
    assert sent_body(setup.n1.calls[0]) == {
        "model": "m", "messages": [{"role": "user", "content": "hello"}], "temperature": 0.5,
        "extra": {"deep": [1, "é"]},
    }  # fmt: skip


async def test_a_body_without_extensions_passes_byte_for_byte(schedule: Schedule) -> None:
    """Blanks, escapes and order reach the engine as they came."""
    setup = await schedule(1)
    body = b'{ "model":"m" ,"messages":[{"role":"user","content":"\\u00e9\\/"}], "top_p":1.50 }'
    assert (await raw.post(setup.server.url, raw.CHAT, body)).status == 200
    assert setup.n1.calls[0].body == body


@pytest.mark.parametrize(
    ("wishes", "param"),
    [
        ([], "x-inferact"), ({"priority": 11}, "x-inferact.priority"), ({"priority": True}, "x-inferact.priority"),
        ({"priority": "high"}, "x-inferact.priority"), ({"node": "n1"}, "x-inferact.node"),
        ({"node_affinity": "nope"}, "x-inferact.node_affinity"),
    ],
)  # fmt: skip
async def test_malformed_extensions_are_400_naming_the_member(schedule: Schedule, wishes: object, param: str) -> None:
    """In OpenAI's error form; no engine is asked."""
    setup = await schedule(1)
    answer = await raw.post(setup.server.url, raw.CHAT, {**CHAT, "x-inferact": wishes})
    assert answer.status == 400
    assert answer.json()["error"]["param"] == param
    assert setup.n1.calls == []


async def test_affinity_is_followed_and_never_leads_elsewhere(schedule: Schedule) -> None:
    """Named node: used even at weight 0; a model it lacks is 400; offline or draining 503, again in about 5 s."""
    setup = await schedule(2, nodes={"n2": {"weight": 0, "models": ["m", "k"]}})
    assert (await setup.server.chat(node_affinity="n2")).get("x-infera-worker") == "n2"
    assert {(await setup.server.chat()).get("x-infera-worker") for _ in range(5)} == {"n1"}
    wrong = await setup.server.chat(model="k", node_affinity="n1")
    assert (wrong.status, wrong.json()["error"]["param"]) == (400, "x-inferact.node_affinity")
    await setup.server.admin("n2", "drain")
    resting = await setup.server.chat(node_affinity="n2")
    assert (resting.status, resting.get("retry-after")) == (503, "5")
    await setup.server.admin("n2", "restore")
    await setup.n2.die()
    dead = await setup.server.chat(node_affinity="n2")
    assert dead.status == 502
    assert (await setup.server.chat(node_affinity="n2")).status == 503
    assert setup.served == {"n1": 5, "n2": 1}


async def test_unknown_models_are_404(schedule: Schedule) -> None:
    """The message lists what is served."""
    setup = await schedule(1)
    answer = await setup.server.chat(model="gpt-5")
    assert answer.status == 404
    assert "m" in answer.json()["error"]["message"]


async def test_no_usable_node_is_503_with_retry_after_5(schedule: Schedule) -> None:
    """All nodes drained: new requests are refused, running ones finish."""
    setup = await schedule(1)
    gate = asyncio.Event()
    setup.n1.then([gate, *unary({"ok": True})])
    running = asyncio.create_task(setup.server.chat())
    await setup.busy(1)
    assert (await setup.server.admin("n1", "drain")).json() == {
        "id": "n1", "draining": True, "requests_in_flight": 1,
    }  # fmt: skip
    refused = await setup.server.chat()
    assert (refused.status, refused.get("retry-after")) == (503, "5")
    gate.set()
    assert (await running).status == 200


async def test_a_dead_node_is_somebody_elses_work(schedule: Schedule) -> None:
    """A connection that fails before any answer goes to the next-best node."""
    setup = await schedule(2, nodes={"n1": {"hardware": "h100-80g"}})
    await setup.n1.die()
    answers = [await setup.server.chat() for _ in range(3)]
    assert [answer.get("x-infera-worker") for answer in answers] == ["n2"] * 3
    assert (await setup.server.status("n1"))["status"] == "offline"


async def test_request_timeout_ms_is_the_limit_of_an_unary_answer(schedule: Schedule) -> None:
    """The whole answer has to be there in time, or the client gets 504."""
    setup = await schedule(1, scheduler={"request_timeout_ms": 300})
    setup.n1.always([Step.HANG])
    answer = await setup.server.chat()
    assert answer.status == 504
    setup.n1.always(chunked([b"a", b"b"], gap=10))
    assert not (await setup.server.chat()).whole


async def test_request_timeout_ms_of_a_stream_is_first_byte_and_gap(schedule: Schedule) -> None:
    """A long stream that moves is not cut; one that stops is broken with an error event."""
    setup = await schedule(1, scheduler={"request_timeout_ms": 400})
    setup.n1.then(chunked(words(6), gap=0.15))
    moving = await setup.server.chat(stream=True)
    assert moving.whole
    setup.n1.then([*chunked(words(2, finish=None), end=False), Step.HANG])
    stopped = await setup.server.chat(stream=True)
    assert not stopped.whole
    assert "timeout_error" in stopped.events()[-1]
    setup.n1.then([Step.HANG])
    assert (await setup.server.chat(stream=True)).status == 504


async def test_without_request_timeout_ms_there_is_no_first_byte_limit(schedule: Schedule) -> None:
    """The limits of everybody hold: 3600 s in all."""
    setup = await schedule(1)
    assert setup.server.scheduling.options.timeout is None
    assert setup.server._server.settings.request_timeout == 3600


async def test_4xx_of_an_engine_is_the_clients(schedule: Schedule) -> None:
    """Passed on once, whatever it says."""
    setup = await schedule(2)
    for worker in setup.workers:
        worker.always(error(400, {"error": {"message": "context too long"}}))
    answer = await setup.server.chat()
    assert (answer.status, answer.json()) == (400, {"error": {"message": "context too long"}})
    assert sum(setup.served.values()) == 1


async def test_a_conversation_stays_where_its_prefix_is(schedule: Schedule) -> None:
    """prefix-aware: the second turn follows the first, another conversation goes to the idle node."""
    setup = await schedule(2, kv_cache={"policy": "prefix-aware"})
    turns = [{"role": "user", "content": "tell me of " + "whales " * 200}]
    first = await setup.server.chat(messages=turns)
    other = await setup.server.chat(messages=[{"role": "user", "content": "and of owls " * 200}])
    assert first.get("x-infera-worker") != other.get("x-infera-worker")
    turns += [{"role": "assistant", "content": "they swim"}, {"role": "user", "content": "more"}]
    seconds = [await setup.server.chat(messages=turns) for _ in range(4)]
    assert {answer.get("x-infera-worker") for answer in seconds} == {first.get("x-infera-worker")}


async def test_a_prefix_hint_leads_to_who_knows_it(schedule: Schedule) -> None:
    """Two system prompts that differ in a date share a node by their hint."""
    setup = await schedule(2, kv_cache={"policy": "prefix-aware"})

    def said(day: str) -> list[dict[str, str]]:
        return [{"role": "system", "content": f"{day} " + "rules " * 300}, {"role": "user", "content": day}]

    first = await setup.server.chat(messages=said("Monday"), kv_prefix_hint="sys_v3")
    second = await setup.server.chat(messages=said("Sunday"), kv_prefix_hint="sys_v3")
    assert first.get("x-infera-worker") == second.get("x-infera-worker")
    assert b"kv_prefix_hint" not in setup.n1.calls[0].body if setup.n1.calls else True


async def test_the_same_policies_serve_plain_fleets(schedule: Schedule) -> None:
    """What engines other than chat know: completions and messages are weighed and passed on too."""
    setup = await schedule(1)
    body = {"model": "m", "prompt": "once", "x-inferact": {"priority": 1}}
    assert (await raw.post(setup.server.url, "/v1/completions", body)).status == 200
    assert sent_body(setup.n1.calls[0]) == {"model": "m", "prompt": "once"}
    assert (await raw.post(setup.server.url, "/v1/embeddings", b"no json")).status == 200
    assert setup.n1.calls[1].body == b"no json"


async def test_explain_shows_the_cost_of_each_node(schedule: Schedule) -> None:
    """The parts of the decision, as they were weighed; nothing is sent."""
    setup = await schedule(2, nodes={"n1": {"hardware": "h100-80g"}})
    ask = {"body": {"model": "m", "max_tokens": 200, "messages": [{"role": "user", "content": "x" * 4000}]}}
    headers = {"Authorization": "Bearer open-sesame"}
    told = (await raw.post(setup.server.url, "/v1/admin/explain", ask, headers)).json()
    assert told["worker"] == "n1"
    terms = {candidate["worker"]: candidate["terms"] for candidate in told["candidates"]}
    assert terms["n1"]["cost"] == pytest.approx(1.3969, abs=1e-4)
    assert terms["n2"]["cost"] == pytest.approx(2.3446, abs=1e-4)
    assert setup.n1.calls == []
    assert json.dumps(terms)
