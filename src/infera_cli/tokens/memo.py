"""Bounded memory of what was worked out before: least recently used leaves first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

OVERHEAD = 200
"""Bytes that an entry takes besides what it holds."""


class Memo(Generic[K, V]):
    """A map of at most `limit` bytes, as their owner estimates them. The loop and the threads that work out tokens may
    use it at the same time."""

    __slots__ = ("_entries", "_writing", "hits", "limit", "misses", "size")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.hits = 0
        self.misses = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._writing = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """What was kept, as the most recently used."""
        found = self._entries.get(key)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        try:  # noqa: SIM105 - a call a message of each prompt
            self._entries.move_to_end(key)
        except KeyError:  # another thread let it go, a moment ago
            pass
        return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep `value`, which takes `size` bytes; what alone exceeds the limit is not kept."""
        size += OVERHEAD
        if size > self.limit:
            return
        with self._writing:
            before = self._entries.pop(key, None)
            if before is not None:
                self.size -= before[1]
            self._entries[key] = value, size
            self.size += size
            while self.size > self.limit:
                self.size -= self._entries.popitem(last=False)[1][1]
