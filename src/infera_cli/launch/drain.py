"""Waits until an engine has nothing to do any more, by its own metrics (infera-wire §9.2; S10, S13, S14, S19)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from infera_cli.protocol.engine_busy import Busy, busy

log = logging.getLogger("infera.launch")

QUIET = 6.0
"""Seconds without a request after which an engine is done; a single zero may be stale."""
POLL = 0.5
_PATIENCE = 5.0
_MOST_FAILURES = 6

Read = Callable[[], Awaitable[bytes]]
"""One look at the metrics page. Raises OSError."""


async def drained(
    read: Read, *, within: float, quiet: float = QUIET, poll: float = POLL,
    clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> bool:  # fmt: skip
    """Whether the engine was without requests for `quiet` seconds on end before `within` seconds were over.

    An engine whose page cannot be read, or says nothing of requests, is not waited for.
    """
    deadline = clock() + within
    page = await _look(read, deadline - clock())
    if page is None:
        log.warning("the engine's metrics say nothing of its requests, so it is stopped without waiting for them")
        return False
    if page.missing:
        log.warning("the engine's metrics lack %s; requests are counted without", ", ".join(page.missing))
    idle_since, failures = None, 0
    while True:
        if page is None:
            failures, idle_since = failures + 1, None
        else:
            failures = 0
            idle_since = None if page.requests else (clock() if idle_since is None else idle_since)
        if idle_since is not None and clock() - idle_since >= quiet:
            return True
        if failures >= _MOST_FAILURES or clock() + poll > deadline:
            log.warning("the engine still has %s when it is stopped", _told(page))
            return False
        await sleep(poll)
        page = await _look(read, deadline - clock())


async def _look(read: Read, left: float) -> Busy | None:
    try:
        async with asyncio.timeout(max(0.05, min(_PATIENCE, left))):
            return busy(await read())
    except OSError:
        return None


def _told(page: Busy | None) -> str:
    return "an unknown number of requests" if page is None else f"{page.requests} requests, or had lately,"
