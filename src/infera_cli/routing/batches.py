"""Static batching: a gate before each node (replica-router §2.8).

Collect until the batch is full or its oldest member has waited long enough; send all together; the gate opens
again only when all of them have finished. This forms batches; what the engine does inside is its own affair.
"""

from __future__ import annotations

from typing import Generic, TypeVar

FLUSH_SECONDS = 2.0

T = TypeVar("T")


class BatchGate(Generic[T]):
    """The gate of one node. `size` is the batch size, `flush` in seconds."""

    __slots__ = ("_running", "_since", "collected", "flush", "size")

    def __init__(self, size: int, flush: float = FLUSH_SECONDS) -> None:
        self.size = size
        self.flush = flush
        self.collected: list[T] = []
        self._running: set[int] = set()
        self._since: list[float] = []

    @property
    def running(self) -> int:
        """Members of the batch that was sent and have not finished."""
        return len(self._running)

    @property
    def is_full(self) -> bool:
        """The next batch has all its members."""
        return len(self.collected) >= self.size

    def collect(self, item: T, now: float) -> None:
        """Wait for the batch."""
        self.collected.append(item)
        self._since.append(now)

    def release(self, now: float) -> list[T]:
        """The batch, when it is due and the last one has finished; else nothing."""
        if self._running or not self.collected:
            return []
        if not self.is_full and now - self._since[0] < self.flush:
            return []
        batch, self.collected = self.collected[: self.size], self.collected[self.size :]
        self._since = self._since[len(batch) :]
        self._running = {id(item) for item in batch}
        return batch

    def finished(self, item: T) -> None:
        """A member is over, or left before it was sent; twice is no fault."""
        self._running.discard(id(item))
        for place, other in enumerate(self.collected):
            if other is item:
                del self.collected[place], self._since[place]
                return

    def evict(self) -> list[T]:
        """The node drains or failed: what was not sent goes elsewhere."""
        collected, self.collected, self._since = self.collected, [], []
        return collected
