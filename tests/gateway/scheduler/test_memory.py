"""Engines that run out of memory (replica-router §2.12; C1, C5)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.gateway.scheduler.conftest import Schedule, Scheduled
from tests.support.replies import chunked, error, event, unary, words
from tests.support.stub import Reply, Step

pytestmark = pytest.mark.asyncio(loop_scope="session")

TGI = {"error": "Request failed during generation: Server error: CUDA out of memory.", "error_type": "generation"}
OOM = error(424, TGI)
EVENT = event({"error": {"message": "CUDA out of memory", "type": "InternalServerError", "code": 500}})
FAST = {"n1": {"hardware": "h100-80g"}}


async def oom_events(setup: Scheduled, name: str) -> float:
    return (await setup.server.metrics())[f'inferact_oom_events_total{{node="{name}"}}']


@pytest.mark.parametrize(
    "reply",
    [OOM, error(500, {"error": {"message": "CUDA OUT OF MEMORY"}}), error(503, "HIP error: out of memory"),
     error(507, "torch.OutOfMemoryError"), chunked([EVENT, b"data: [DONE]\n\n"])],
    ids=["424", "500", "503", "507", "event"],
)  # fmt: skip
async def test_c5_an_out_of_memory_is_served_by_another_node(schedule: Schedule, reply: Reply) -> None:
    """The client sees only the good answer; the event counts on the node that failed, which is degraded."""
    setup = await schedule(2, nodes=FAST, batching={"max_batch_size": 16})
    setup.n1.then(reply)
    answer = await setup.server.chat(stream=True)
    assert (answer.status, answer.json(), answer.get("x-infera-worker")) == (200, {"ok": True}, "n2")
    assert (await oom_events(setup, "n1"), await oom_events(setup, "n2")) == (1, 0)
    node = await setup.server.status("n1")
    assert (node["status"], node["cap"]) == ("degraded", 8)


async def test_the_roomiest_node_gets_it(schedule: Schedule) -> None:
    """Of the others, the one with the most free memory, not the fastest."""
    setup = await schedule(3, nodes={"n1": {"hardware": "h100-80g"}, "n2": {"hardware": "rtx-4090"},
                                     "n3": {"hardware": "a6000"}})  # fmt: skip
    setup.workers[0].then(OOM)
    assert (await setup.server.chat()).get("x-infera-worker") == "n3"


async def test_alone_the_engines_own_words_are_passed(schedule: Schedule) -> None:
    """No other node: status and body as they came, nothing is counted as recovered."""
    setup = await schedule(1)
    setup.n1.always(OOM)
    answer = await setup.server.chat()
    assert (answer.status, answer.json()) == (424, TGI)
    assert await oom_events(setup, "n1") == 0
    assert len(setup.n1.calls) == 1


async def test_a_pinned_request_is_not_moved(schedule: Schedule) -> None:
    """node_affinity: the engine's answer is passed, nobody else is asked."""
    setup = await schedule(2)
    setup.n1.always(OOM)
    answer = await setup.server.chat(node_affinity="n1")
    assert (answer.status, answer.json()) == (424, TGI)
    assert setup.served == {"n1": 1, "n2": 0}


@pytest.mark.parametrize("second", [OOM, error(500, {"error": {"message": "boom"}}), error(400, {"error": "no"})])
async def test_when_the_second_fails_too_its_answer_is_passed(schedule: Schedule, second: Reply) -> None:
    """One other node is tried, not more; what that says is the last word, and nothing was recovered."""
    setup = await schedule(3, nodes=FAST)
    setup.workers[0].always(OOM)
    for worker in setup.workers[1:]:
        worker.always(second)
    answer = await setup.server.chat()
    assert answer.status == int(bytes(second[0]).split()[1])  # type: ignore[arg-type]
    assert sum(setup.served.values()) == 2
    assert await oom_events(setup, "n1") == 0


async def test_when_the_second_cannot_be_reached_the_first_answer_is_passed(schedule: Schedule) -> None:
    """The engine's own words are better than ours."""
    setup = await schedule(2, nodes=FAST)
    setup.n1.always(OOM)
    await setup.n2.die()
    answer = await setup.server.chat()
    assert (answer.status, answer.json()) == (424, TGI)


async def test_after_the_first_byte_there_is_no_retry(schedule: Schedule) -> None:
    """An error in mid-stream is relayed; the node is degraded, nothing counts as recovered."""
    setup = await schedule(2, nodes=FAST)
    setup.n1.then(chunked([*words(1, finish=None), EVENT, b"data: [DONE]\n\n"], gap=0.05))
    answer = await setup.server.chat(stream=True)
    assert "CUDA out of memory" in answer.events()[-2]
    assert setup.served == {"n1": 1, "n2": 0}
    assert (await setup.server.status("n1"))["status"] == "degraded"
    assert await oom_events(setup, "n1") == 0


@pytest.mark.parametrize(
    "reply", [error(429, {"error": "Model is overloaded"}), error(422, {"error": "out of memory"})], ids=["429", "422"]
)
async def test_overload_is_no_out_of_memory(schedule: Schedule, reply: Reply) -> None:
    """The node is as healthy as before."""
    setup = await schedule(1)
    setup.n1.always(reply)
    await setup.server.chat()
    assert (await setup.server.status("n1"))["status"] == "healthy"


async def test_c1_an_engine_that_dies_of_it_is_offline_until_it_answers(schedule: Schedule) -> None:
    """One bare 500, then refused connections: others serve, and a probe that succeeds brings the node back."""
    setup = await schedule(2, "--health-interval", "0.1", "--connect-timeout", "1", nodes=FAST)
    setup.n1.then([b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n", Step.CLOSE])
    assert (await setup.server.chat()).get("x-infera-worker") == "n2"
    await setup.n1.die()
    assert {(await setup.server.chat()).get("x-infera-worker") for _ in range(3)} == {"n2"}
    assert (await setup.server.status("n1"))["status"] == "offline"
    await setup.n1.listen()
    async with asyncio.timeout(10):
        while (await setup.server.status("n1"))["status"] == "offline":  # noqa: ASYNC110 - no event for us
            await asyncio.sleep(0.05)


async def test_c4_twice_within_a_minute_is_offline_although_probes_succeed(schedule: Schedule) -> None:
    """Health alone does not bring it back before the cool-down is over."""
    setup = await schedule(2, "--health-interval", "0.05", nodes=FAST | {"n2": {"weight": 0.01}})
    setup.n1.then(OOM, OOM)
    assert [(await setup.server.chat()).status for _ in range(2)] == [200, 200]
    probes = len(setup.n1.probes)
    async with asyncio.timeout(10):
        while len(setup.n1.probes) < probes + 5:  # noqa: ASYNC110 - probes have no event
            await asyncio.sleep(0.02)
    assert (await setup.server.status("n1"))["status"] == "offline"
    assert (await setup.server.chat()).get("x-infera-worker") == "n2"


async def test_its_prefixes_are_forgotten(schedule: Schedule) -> None:
    """What the node held is not looked for there any more."""
    setup = await schedule(1, kv_cache={"policy": "prefix-aware"})
    await setup.server.chat()
    residency = setup.server.scheduler.nodes.residency
    number = setup.server.node("n1").worker.number
    assert residency.count(number) == 1
    setup.n1.then(OOM)
    await setup.server.chat()
    assert residency.count(number) == 0


async def test_large_and_slow_failures_are_still_passed_on(schedule: Schedule) -> None:
    """A long error body that says something else reaches the client whole."""
    setup = await schedule(1)
    body = {"error": {"message": "x" * 200_000}}
    setup.n1.always(error(500, body))
    answer = await setup.server.chat()
    assert (answer.status, answer.json()) == (500, body)


async def test_a_failure_that_breaks_off_is_tried_elsewhere(schedule: Schedule) -> None:
    """Half a 500 and then nothing: the other node serves, as for any broken answer."""
    setup = await schedule(2, nodes=FAST)
    half: Any = [b"HTTP/1.1 500 X\r\ncontent-length: 100\r\n\r\n" + json.dumps({"e": 1}).encode(), Step.RESET]
    setup.n1.then(half)
    assert (await setup.server.chat()).json() == {"ok": True}


async def test_streams_pass_through_untouched(schedule: Schedule) -> None:
    """Looking at the first event changes no byte of a good stream."""
    setup = await schedule(1)
    setup.n1.then(chunked([*words(3), b"data: [DONE]\n\n"], gap=0.01))
    answer = await setup.server.chat(stream=True)
    assert answer.whole
    assert answer.body == b"".join([*words(3), b"data: [DONE]\n\n"])
    setup.n1.then(unary({"ok": 1}))
    assert (await setup.server.chat()).json() == {"ok": 1}
