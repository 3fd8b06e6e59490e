"""Caps, the queue, and static batches, on the wire (replica-router §2.7, §2.8; rulings 20)."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.scheduler.conftest import CHAT, Schedule, Scheduled
from tests.support import raw
from tests.support.replies import unary
from tests.support.stub import StubWorker

pytestmark = pytest.mark.asyncio(loop_scope="session")

Answers = list["asyncio.Task[raw.Response]"]


def hold(*workers: StubWorker) -> list[asyncio.Event]:
    """Each relayed request gets an event of its own, in order of arrival, and is answered when that is set."""
    gates: list[asyncio.Event] = []

    def script(_seen: object) -> list[object]:
        gates.append(asyncio.Event())
        return [gates[-1], *unary({"ok": True})]

    for worker in workers:
        worker.script = script  # type: ignore[assignment]
    return gates


async def ask(setup: Scheduled, answers: Answers, waiting: int | None, **members: object) -> None:
    answers.append(asyncio.create_task(setup.server.chat(**members)))  # type: ignore[arg-type]
    if waiting is not None:
        await setup.waiting(waiting)


async def finish(gates: list[asyncio.Event], answers: Answers) -> list[raw.Response]:
    """Let everything go, in order, as it comes."""
    done = asyncio.gather(*answers)
    while not done.done():
        for gate in gates:
            gate.set()
        await asyncio.sleep(0.005)
    return await done


async def test_never_more_than_the_cap_at_a_node(schedule: Schedule) -> None:
    """Twelve at once on two nodes of cap two: never more than two at either, and all are served."""
    setup = await schedule(2, batching={"max_batch_size": 2})
    for worker in setup.workers:
        worker.always([0.02, *unary({"ok": True})])
    answers = await asyncio.gather(*[setup.server.chat() for _ in range(12)])
    assert [answer.status for answer in answers] == [200] * 12
    assert [worker.most for worker in setup.workers] == [2, 2]


async def test_priority_nine_overtakes_priority_one(schedule: Schedule) -> None:
    """Among those who wait the highest goes first, equals as they came."""
    setup = await schedule(1, batching={"max_batch_size": 1})
    gates, answers = hold(setup.n1), Answers()
    await ask(setup, answers, None, user="first")
    await setup.busy(1)
    for number, (name, priority) in enumerate([("low", 1), ("mid-a", 5), ("mid-b", 5), ("high", 9)]):
        await ask(setup, answers, number + 1, user=name, priority=priority)
    await finish(gates, answers)
    order = [seen.body.partition(b'"user": "')[2].partition(b'"')[0].decode() for seen in setup.n1.calls]
    assert order == ["first", "high", "mid-a", "mid-b", "low"]


async def test_a_slot_goes_to_whom_the_node_may_serve(schedule: Schedule) -> None:
    """One who insists on a busy node does not hold up those behind it."""
    setup = await schedule(2, batching={"max_batch_size": 1})
    gates1, gates2, answers = hold(setup.n1), hold(setup.n2), Answers()
    await ask(setup, answers, None, node_affinity="n1")
    await ask(setup, answers, None, node_affinity="n2")
    await setup.busy(2)
    await ask(setup, answers, 1, node_affinity="n1", priority=10)
    await ask(setup, answers, 2, priority=0)
    gates2[0].set()
    await setup.waiting(1)
    await setup.busy(2)
    assert setup.served == {"n1": 1, "n2": 2}
    await finish(gates1 + gates2, answers[:1] + answers[1:2])
    await finish(gates1, answers[2:3])
    await finish(gates2, answers[3:])


async def test_the_queue_has_a_limit(schedule: Schedule) -> None:
    """--queue-limit waiting: the next one gets 429 with Retry-After 1."""
    setup = await schedule(1, "--queue-limit", "2", batching={"max_batch_size": 1})
    gates, answers = hold(setup.n1), Answers()
    await ask(setup, answers, None)
    await setup.busy(1)
    await ask(setup, answers, 1)
    await ask(setup, answers, 2)
    refused = await setup.server.chat()
    assert (refused.status, refused.get("retry-after")) == (429, "1")
    assert {answer.status for answer in await finish(gates, answers)} == {200}


async def test_who_leaves_is_removed_from_the_queue(schedule: Schedule) -> None:
    """A client that gives up while it waits is never sent."""
    setup = await schedule(1, batching={"max_batch_size": 1})
    gates, answers = hold(setup.n1), Answers()
    await ask(setup, answers, None)
    await setup.busy(1)
    async with await raw.Client.connect(setup.server.url) as client:
        await client.post(raw.CHAT, CHAT)
        await setup.waiting(1)
    await setup.waiting(0)
    await finish(gates, answers)
    assert setup.served == {"n1": 1}


async def test_waiting_counts_towards_the_time_out(schedule: Schedule) -> None:
    """Unary or streamed: who waits longer than request_timeout_ms gets 504."""
    setup = await schedule(1, batching={"max_batch_size": 1}, scheduler={"request_timeout_ms": 600})
    gates, answers = hold(setup.n1), Answers()
    await ask(setup, answers, None)
    await setup.busy(1)
    await asyncio.sleep(0.3)
    await ask(setup, answers, 1)
    await ask(setup, answers, 2, stream=True)
    late = await asyncio.gather(*answers[1:])
    assert [answer.status for answer in late] == [504, 504]
    assert len(setup.n1.calls) >= 1
    await finish(gates, answers[:1])


async def test_draining_refuses_those_who_insist(schedule: Schedule) -> None:
    """Waiting for a node that drains is 503; the others go on."""
    setup = await schedule(2, batching={"max_batch_size": 1})
    gates, answers = hold(*setup.workers), Answers()
    await ask(setup, answers, None)
    await ask(setup, answers, None)
    await setup.busy(2)
    await ask(setup, answers, 1, node_affinity="n1")
    await ask(setup, answers, 2)
    await setup.server.admin("n1", "drain")
    assert (await answers[2]).status == 503
    assert [answer.status for answer in await finish(gates, [*answers[:2], answers[3]])] == [200] * 3


async def test_waiting_ends_when_no_node_is_left(schedule: Schedule) -> None:
    """All nodes of the model drained: who waits is told so."""
    setup = await schedule(1, batching={"max_batch_size": 1})
    gates, answers = hold(setup.n1), Answers()
    await ask(setup, answers, None)
    await setup.busy(1)
    await ask(setup, answers, 1)
    await setup.server.admin("n1", "drain")
    assert (await answers[1]).status == 503
    await finish(gates, answers[:1])


async def test_a_node_that_comes_back_takes_those_who_wait(schedule: Schedule) -> None:
    """Restoring a node gives its places to the queue at once."""
    setup = await schedule(2, batching={"max_batch_size": 1})
    gates, answers = hold(*setup.workers), Answers()
    await setup.server.admin("n2", "drain")
    await ask(setup, answers, None)
    await setup.busy(1)
    await ask(setup, answers, 1)
    await setup.server.admin("n2", "restore")
    await setup.waiting(0)
    await setup.busy(2)
    await finish(gates, answers)
    assert setup.served == {"n1": 1, "n2": 1}


async def test_a_node_that_would_preempt_is_full(schedule: Schedule) -> None:
    """Load in tokens: what is held and what comes must fit into the cache that the engine says it has."""
    setup = await schedule(1)
    page = b"vllm:kv_cache_usage_perc 0.0\nvllm:cache_config_info{kv_cache_size_tokens=\"1000\"} 1\n"
    setup.n1.metrics = [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(page) + page]
    async with asyncio.timeout(10):
        while not getattr(setup.server.node("n1").measured, "cache_tokens", None):  # noqa: ASYNC110 - no event for us
            await asyncio.sleep(0.02)
    gates, answers = hold(setup.n1), Answers()
    await ask(setup, answers, None, max_tokens=600)
    await setup.busy(1)
    await ask(setup, answers, 1, max_tokens=600)
    assert (await setup.server.status("n1"))["tokens_held"] == 602
    await ask(setup, answers, 1, max_tokens=100)
    assert {answer.status for answer in await finish(gates, answers)} == {200}


# ── static batches ───────────────────────────────────────────────────────────────────────────────────
STATIC = {"strategy": "static", "max_batch_size": 3, "static_flush_ms": 300}


async def test_a_static_batch_leaves_together(schedule: Schedule) -> None:
    """Two wait for the third; the next batch waits for all three to finish."""
    setup = await schedule(1, batching=STATIC | {"static_flush_ms": 60_000})
    gates, answers = hold(setup.n1), Answers()
    for _ in range(2):
        await ask(setup, answers, None)
    await asyncio.sleep(0.1)
    assert setup.n1.calls == []
    for _ in range(4):
        await ask(setup, answers, None)
    await setup.busy(3)
    gates[0].set()
    gates[1].set()
    await setup.busy(1)
    await asyncio.sleep(0.05)
    assert len(setup.n1.calls) == 3
    gates[2].set()
    await setup.busy(3)
    assert len(setup.n1.calls) == 6
    await finish(gates, answers)
    assert setup.n1.most == 3


async def test_the_tail_of_a_job_is_flushed(schedule: Schedule) -> None:
    """Fewer than a batch leave once the oldest has waited static_flush_ms."""
    setup = await schedule(1, batching=STATIC)
    before = asyncio.get_running_loop().time()
    assert (await setup.server.chat()).status == 200
    assert 0.25 < asyncio.get_running_loop().time() - before < 5


async def test_draining_sends_an_unsent_batch_elsewhere(schedule: Schedule) -> None:
    """What was gathered for a node that drains is served by another."""
    setup = await schedule(2, batching=STATIC | {"static_flush_ms": 1000}, nodes={"n1": {"hardware": "h100-80g"}})
    answers = Answers()
    await ask(setup, answers, None)
    async with asyncio.timeout(5):
        while not setup.server.scheduling._gates:  # noqa: ASYNC110 - gathering has no event
            await asyncio.sleep(0.005)
    await setup.server.admin("n1", "drain")
    assert (await answers[0]).get("x-infera-worker") == "n2"
    assert setup.served == {"n1": 0, "n2": 1}


async def test_who_leaves_an_unsent_batch_is_not_sent(schedule: Schedule) -> None:
    """Its place in the batch is free again."""
    setup = await schedule(1, batching=STATIC | {"static_flush_ms": 500})
    async with await raw.Client.connect(setup.server.url) as client:
        await client.post(raw.CHAT, CHAT | {"user": "gone"})
        async with asyncio.timeout(5):
            while not setup.server.scheduling._gates:  # noqa: ASYNC110 - gathering has no event
                await asyncio.sleep(0.005)
    assert (await setup.server.chat()).status == 200
    assert setup.served == {"n1": 1}
    assert b"gone" not in setup.n1.calls[0].body
