"""What becomes of the requests of a worker that left (R110)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from infera_cli.fleet.member import Member
from infera_cli.fleet.probe import Fetch
from infera_cli.fleet.registry import Registry
from infera_cli.gateway.gate import Gate

LAST_LOOK = 2.0
"""Seconds in which a worker that left must answer, or its waiting requests move on."""


class Farewell:
    """Looks after the requests that wait on a worker which left.

    Who still answers goes on answering: it drains, or a person took it off the list. What it was given stays with it.
    Who does not even answer a probe is gone, and what waits for its first byte goes elsewhere (R110).
    """

    def __init__(self, gate: Gate, fetch: Fetch) -> None:
        self._gate = gate
        self._fetch = fetch
        self._looking: set[asyncio.Task[None]] = set()

    def __call__(self, member: Member) -> None:
        """`member` left, just now."""
        task = asyncio.ensure_future(self._look(member))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    @contextlib.contextmanager
    def to_leavers(self, registry: Registry, source: str) -> Iterator[None]:
        """Whoever of `source` is in the fleet before and not after has left."""
        before = [member for member in registry.members() if member.spec.source == source]
        yield
        for member in before:
            if registry.member(member.id) is not member:
                self(member)

    async def aclose(self) -> None:
        """End all looks."""
        for task in self._looking:
            task.cancel()
        await asyncio.gather(*self._looking, return_exceptions=True)

    async def _look(self, member: Member) -> None:
        try:
            await self._fetch(member.spec, "/health", timeout=LAST_LOOK)
        except OSError:
            self._gate.worker_left(member.worker)
