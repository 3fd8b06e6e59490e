"""Keeps finished requests for a moment and hands them on in batches, so that the relay pays for one append.

What is worked out about a request (metrics, journal, access line) is worked out then, some ten times a second,
away from the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from infera_cli.events import Bus, Event, RequestDone

FLUSH_SECONDS = 0.1
FLUSH_AT = 256
"""So many are handed on at once, so that no flush holds up the event loop for long."""

Batch = Sequence[RequestDone]
Consumer = Callable[[Batch], None]


class Recorder:
    """Listens to the bus; `consumers` get what has gathered at each flush, in order."""

    def __init__(self, bus: Bus, consumers: Sequence[Consumer] = ()) -> None:
        self._pending: list[RequestDone] = []
        self._consumers = list(consumers)
        bus.subscribe(self._take, RequestDone)

    def _take(self, event: Event) -> None:
        if type(event) is RequestDone:
            self._pending.append(event)
            if len(self._pending) >= FLUSH_AT:
                self.flush()

    def feed(self, consumer: Consumer) -> None:
        """Hand later batches to `consumer` as well."""
        self._consumers.append(consumer)

    def flush(self) -> None:
        """Hand on what has gathered; does nothing when that is nothing."""
        batch = self._pending
        if batch:
            self._pending = []
            for consumer in self._consumers:
                consumer(batch)

    async def run(self, on_lag: Callable[[float], None] = lambda _lag: None) -> None:
        """Flush every `FLUSH_SECONDS` until cancelled, and once more then.

        `on_lag` hears how many seconds late each round came: that is how long the event loop was held up.
        """
        loop = asyncio.get_running_loop()
        try:
            while True:
                due = loop.time() + FLUSH_SECONDS
                await asyncio.sleep(FLUSH_SECONDS)
                on_lag(max(0.0, loop.time() - due))
                self.flush()
        finally:
            self.flush()
