"""A clock that tests turn by hand, with a `sleep` that obeys it."""

from __future__ import annotations

import asyncio
import heapq


class VirtualTime:
    """Seconds pass only by `advance`; whoever sleeps wakes in order of time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Like asyncio.sleep, on this clock."""
        self._count += 1
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, self._count, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, waking everybody whose time comes, each at its own moment."""
        end = self.now + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self.now, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
                await self.settle()
        self.now = end

    async def settle(self) -> None:
        """Let everything run that can run without time passing."""
        for _ in range(12):
            await asyncio.sleep(0)
