"""The threads that work out tokens: beside the event loop, and behind it where they share a processor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from infera_cli.routing.prompt import Prompt

NICENESS = 15
"""Not more: what the threads lock must be let go though others want the processor."""

Work = Callable[[], Prompt]


class TokenThreads:
    """A few threads and one queue. What is cancelled while it waits is never begun.

    The first thread is used whenever it is free, not each in turn: the system lets a thread that rested for long go
    ahead of the event loop for a while.
    """

    def __init__(self, count: int) -> None:
        self._threads = [
            ThreadPoolExecutor(1, thread_name_prefix="infera-tokens", initializer=stand_back) for _ in range(count)
        ]
        self._free = set(range(count))
        self._queue: deque[tuple[Work, asyncio.Future[Prompt]]] = deque()

    @property
    def waiting(self) -> int:
        """Pieces of work that are not done."""
        return len(self._queue) + len(self._threads) - len(self._free)

    def run(self, work: Work) -> asyncio.Future[Prompt]:
        """Do it as soon as a thread is free. Needs a running loop."""
        result: asyncio.Future[Prompt] = asyncio.get_running_loop().create_future()
        self._queue.append((work, result))
        self._begin()
        return result

    def close(self) -> None:
        """No more; what is being worked out is not waited for."""
        self._queue.clear()
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        while self._free and self._queue:
            work, result = self._queue.popleft()
            if result.cancelled():
                continue
            number = min(self._free)
            self._free.remove(number)
            loop = result.get_loop()
            self._threads[number].submit(work).add_done_callback(partial(self._done, loop, number, result))

    def _done(
        self, loop: asyncio.AbstractEventLoop, number: int, result: asyncio.Future[Prompt], job: Future[Prompt]
    ) -> None:
        """In the thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._over, number, result, job)

    def _over(self, number: int, result: asyncio.Future[Prompt], job: Future[Prompt]) -> None:
        self._free.add(number)
        self._begin()
        if result.cancelled() or job.cancelled():
            return
        error = job.exception()
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(job.result())


def stand_back() -> None:
    """Let this thread have the processor after those who wait for others.

    Where they share one, the event loop then goes on at once when something comes, and is not put aside when the thread
    gets work: else others wait a turn of some milliseconds each time. Where a thread has no priority of its own (not
    Linux, or not allowed) nothing changes.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
