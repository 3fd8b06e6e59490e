"""Threads that work out tokens: none is taken to be free while it works."""

from __future__ import annotations

import asyncio
import threading
import time

from infera_cli.gateway.kv.threads import TokenThreads
from infera_cli.routing.prompt import Prompt


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
