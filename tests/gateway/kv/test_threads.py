"""Threads that work out tokens: none is taken to be free while it works."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path

from infera_cli.gateway.kv.threads import TokenThreads
from infera_cli.routing.prompt import Prompt
from tests.gateway.kv.worlds import KvServer, serving
from tests.support import raw, replies

PACE = 0.05


async def test_r098_a_thread_whose_work_was_given_up_is_not_free() -> None:
    """Who comes later goes to the other one, and does not wait for what cannot be interrupted."""
    threads, gate = TokenThreads(2), threading.Event()

    def stuck() -> Prompt:
        gate.wait(10)
        return Prompt()

    try:
        given_up = threads.run(stuck)
        await asyncio.sleep(0.05)
        given_up.cancel()
        begin = time.monotonic()
        for _ in range(3):
            assert isinstance(await threads.run(Prompt), Prompt)
        assert time.monotonic() - begin < 5
        assert threads.waiting == 1
    finally:
        gate.set()
        threads.close()


async def test_what_waits_goes_to_whoever_is_free_first() -> None:
    """One long piece of work holds up nobody but itself; what is cancelled in the queue is never begun."""
    threads, gate, begun = TokenThreads(2), threading.Event(), []

    def stuck() -> Prompt:
        gate.wait(10)
        return Prompt()

    def noted() -> Prompt:
        begun.append(1)
        return Prompt()

    try:
        first = threads.run(stuck)
        rest = [threads.run(noted) for _ in range(4)]
        rest[3].cancel()
        await asyncio.wait_for(asyncio.gather(*rest[:3]), 5)
        await asyncio.sleep(0.05)
        assert len(begun) == 3
        assert not first.done()
        gate.set()
        await asyncio.wait_for(first, 5)
        assert threads.waiting == 0
    finally:
        gate.set()
        threads.close()


async def test_a_failure_reaches_who_asked() -> None:
    """As it is."""
    threads = TokenThreads(1)

    def broken() -> Prompt:
        raise ValueError("no")

    try:
        failed = await asyncio.gather(threads.run(broken), return_exceptions=True)
        assert isinstance(failed[0], ValueError)
    finally:
        threads.close()


async def longest_gap(server: KvServer, asking: list[asyncio.Task[raw.Response]], began: asyncio.Event) -> float:
    """Of a stream that goes on while others are asking."""
    longest, came = 0.0, time.monotonic()
    async with await raw.Client.connect(server.url) as client:
        await client.post(body={"model": "m", "stream": True})
        await client.head()
        async for _ in client.body():
            longest, came = max(longest, time.monotonic() - came), time.monotonic()
            began.set()
            if asking and all(task.done() for task in asking):
                break
    return longest


async def long_prompts(server: KvServer, name: int) -> tuple[float, float]:
    """Ten prompts of a megabyte at once, new ones for each name: the slowest /health, and by how much a gap grew."""
    texts = [f"{name} {number} " + "abc def ghi. " * 80_000 for number in range(10)]
    bodies = [json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode() for text in texts]
    asking: list[asyncio.Task[raw.Response]] = []
    began, slowest = asyncio.Event(), 0.0
    streaming = asyncio.create_task(longest_gap(server, asking, began))
    await began.wait()
    asking += [asyncio.create_task(raw.post(server.url, body=body)) for body in bodies]
    while not all(task.done() for task in asking):
        before = time.monotonic()
        await server.health()
        slowest = max(slowest, time.monotonic() - before)
        await asyncio.sleep(0.02)
    assert [(await task).status for task in asking] == [200] * 10
    return slowest, await streaming - PACE


async def test_r098_c31_long_prompts_do_not_hold_up_others(tmp_path: Path, model: Path) -> None:
    """Yet /health answers in half a second and a stream goes on; others on the machine may spoil two of three tries."""
    async with serving(tmp_path, model) as server:
        for worker in server.workers:
            worker.script = lambda seen: (
                replies.chunked(replies.words(400), gap=PACE) if b'"stream": true' in seen.body else replies.unary({})
            )
        tries: list[tuple[float, float]] = []
        while len(tries) < 3 and not any(slowest < 0.5 and grown < 0.2 for slowest, grown in tries):
            tries.append(await long_prompts(server, len(tries)))
        assert server.cache.reader.counters.threaded == 10 * len(tries)
        assert any(slowest < 0.5 and grown < 0.4 for slowest, grown in tries), tries
