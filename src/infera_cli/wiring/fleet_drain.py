"""Draining at a router that was named, before a replica is stopped. A drain is one router's: others send on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from infera_cli.client import workers
from infera_cli.client.http import Server
from infera_cli.errors import ServerUnreachable

_POLL = 0.25


def drainer(
    server: Server, url_of: Callable[[str], str | None], *, within: float, tell: Callable[[str, str], None]
) -> Callable[[str], Awaitable[None]]:
    """What drains a slot's replica at `server`: the worker with its URL, until nothing is open or `within` seconds.

    Raises ServerUnreachable and other InferaErrors; a router that does not know the replica has nothing to drain.
    """

    async def drain(slot: str) -> None:
        url = url_of(slot)
        found = await asyncio.to_thread(workers.workers, server)
        names = [str(worker.get("worker_id")) for worker in found if worker.get("url") == url]
        if not names:
            tell(slot, f"{server.url} does not route to it")
            return
        await asyncio.to_thread(workers.drain, server, names[0])
        deadline = time.monotonic() + within
        while (open_now := await asyncio.to_thread(_outstanding, server, names[0])) > 0:
            if time.monotonic() > deadline:
                tell(slot, f"{open_now} requests are still open after {within:g} s")
                return
            await asyncio.sleep(_POLL)

    return drain


def _outstanding(server: Server, name: str) -> int:
    found: list[dict[str, Any]] = workers.workers(server)
    for worker in found:
        if worker.get("worker_id") == name:
            return int(worker.get("outstanding") or 0)
    return 0


async def reachable(server: Server) -> None:
    """Raises ServerUnreachable where no router answers at all."""
    try:
        await asyncio.to_thread(workers.workers, server)
    except ServerUnreachable as fault:
        raise ServerUnreachable(f"{fault.message}; nothing was stopped") from None
