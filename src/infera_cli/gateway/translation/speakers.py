"""Which engine speaks which API itself: each is asked once, when that is first needed.

The question is a GET of the route, which no engine generates for: a route that is there takes POST alone and says
405. An engine that came back may be another version, so what is known of it is forgotten when it goes.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from infera_cli.routing.types import Worker, WorkerSpec

_SECONDS = 5.0


class Reply(Protocol):
    """A worker's answer, as far as it matters here."""

    status: int


class Fetch(Protocol):
    """GETs from workers."""

    async def __call__(self, spec: WorkerSpec, path: str, *, timeout: float) -> Reply:  # noqa: ASYNC109 - the prober's too
        """Raises OSError, TimeoutError."""


class Speakers:
    """What is known about the workers; `fixed` (True or False) asks nobody."""

    def __init__(self, fetch: Fetch, *, fixed: dict[str, bool] | None = None) -> None:
        self._fetch = fetch
        self._fixed = fixed or {}
        self._known: dict[tuple[Worker, str], bool] = {}
        self._asking: dict[tuple[Worker, str], asyncio.Task[bool | None]] = {}

    def speaks(self, worker: Worker, path: str) -> bool | None:
        """Whether the worker serves `path` itself; None while it was not asked."""
        fixed = self._fixed.get(path)
        return fixed if fixed is not None else self._known.get((worker, path))

    async def ask(self, worker: Worker, path: str) -> None:
        """Find out, together with whoever else waits; a worker that cannot be asked stays unknown."""
        key = worker, path
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.ensure_future(self._ask(worker, path))
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        answer = await asyncio.shield(task)
        if answer is not None:
            self._known[key] = answer

    async def _ask(self, worker: Worker, path: str) -> bool | None:
        try:
            reply = await self._fetch(worker.spec, path, timeout=_SECONDS)
        except OSError:
            return None
        return reply.status == 405

    def forget(self, worker_id: str) -> None:
        """The worker of that name went away, or came back."""
        for key in [key for key in self._known if key[0].id == worker_id]:
            del self._known[key]
