"""KV blocks with a prefix cache, as vLLM keeps them (engines §7).

A block is a small integer. It is *used* while a sequence refers to it, *cached* while it is free but still
holds the content it was named after, and *blank* otherwise. A name is a chained block hash, so one name
stands for a whole prefix. The same content computed twice lives in two blocks of one name (engines §1.8.5).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec


class Stored(msgspec.Struct, frozen=True, gc=False):
    """Blocks that became findable: `start` is the place of the first in its sequence, `owner` the
    sequence's id, `parent` the name before it (None at the beginning of a prompt)."""

    hashes: tuple[int, ...]
    parent: int | None
    owner: str
    start: int


class Removed(msgspec.Struct, frozen=True, gc=False):
    """One block that was evicted; another copy of the same name may still live."""

    hash: int


CacheEvent = Stored | Removed


class BlockCache:
    """`capacity` blocks, reference-counted while used, evicted least recently used and leaf first when
    needed.

    With `record`, what was stored and removed is kept for `events()`; without, nothing accumulates.
    """

    def __init__(self, capacity: int, *, record: bool = False) -> None:
        if capacity < 1:
            raise ValueError("a cache needs at least one block")
        self.capacity = capacity
        self._record = record
        self._shared: dict[int, int] = {}                      # block → references, where there are several
        self._blank = list(range(capacity - 1, -1, -1))
        self._cached: OrderedDict[int, int] = OrderedDict()    # block → its name; oldest first
        self._by_name: dict[int, int] = {}
        self._copies: dict[int, list[int]] = {}                # further blocks of a name that has one already
        self._events: list[CacheEvent] = []

    @property
    def free(self) -> int:
        """Blocks that may be taken: blank and cached ones."""
        return len(self._blank) + len(self._cached)

    @property
    def used(self) -> int:
        """Blocks that sequences refer to."""
        return self.capacity - self.free

    @property
    def named(self) -> int:
        """Different names that can be found."""
        return len(self._by_name)

    def find(self, chain: Sequence[int], limit: int) -> list[int]:
        """The blocks that hold the longest known prefix of `chain`, at most `limit` of them; changes
        nothing."""
        get = self._by_name.get
        if not limit or not chain or get(chain[0]) is None:
            return []
        found: list[int | None] = list(map(get, chain[:limit]))
        if None in found:
            del found[found.index(None) :]
        return found  # type: ignore[return-value]  # what is left of it are blocks

    def idle(self, blocks: Sequence[int]) -> int:
        """How many of `blocks` are free now and would no longer be once acquired."""
        return sum(map(self._cached.__contains__, blocks))

    def acquire(self, blocks: Sequence[int]) -> None:
        """Refer to blocks that `find` returned."""
        cached, shared = self._cached, self._shared
        for block in blocks:
            if block in cached:
                del cached[block]
            else:
                shared[block] = shared.get(block, 1) + 1

    def take(self, count: int) -> list[int]:
        """`count` blocks of unknown content, each referred to once; blank ones first, then the oldest cached.

        Raises ValueError, changing nothing, when fewer are free.
        """
        blank = self._blank
        short = count - len(blank)
        if short <= 0:
            taken = blank[-count:] if count else []
            del blank[len(blank) - count :]
            taken.reverse()
            return taken
        if short > len(self._cached):
            raise ValueError(f"{count} blocks wanted, {self.free} free")
        if not blank:
            return self._evict(short)
        taken = blank[::-1]
        blank.clear()
        return taken + self._evict(short)

    def name(self, blocks: Sequence[int], chain: Sequence[int], start: int, owner: str = "") -> None:
        """`blocks`, all used and unnamed, now hold the full blocks `chain[start:start + len(blocks)]`."""
        names, by_name = chain[start : start + len(blocks)], self._by_name
        fresh = dict(zip(names, blocks, strict=True))
        if len(fresh) == len(names) and by_name.keys().isdisjoint(fresh):
            by_name.update(fresh)
        else:
            for block, name in zip(blocks, names, strict=True):
                if by_name.setdefault(name, block) != block:
                    self._copies.setdefault(name, []).append(block)
        if self._record and names:
            self._events.append(Stored(tuple(names), chain[start - 1] if start else None, owner, start))

    def release(self, blocks: Sequence[int], names: Sequence[int]) -> None:
        """Refer to `blocks` of one sequence, in order, no longer; the first of them bear `names`. The last becomes
        the first to be evicted."""
        cached, shared, named = self._cached, self._shared, len(names)
        if named < len(blocks):
            self._blank += blocks[: named - 1 if named else None : -1]
            blocks = blocks[:named]
        for block, name in zip(reversed(blocks), reversed(names), strict=True):
            if block in shared:
                self._drop(block)
            else:
                cached[block] = name

    def _drop(self, block: int) -> None:
        """One reference of several."""
        left = self._shared[block] - 1
        if left > 1:
            self._shared[block] = left
        else:
            del self._shared[block]

    def clear(self) -> bool:
        """Forget all content; refused (False) while blocks are used."""
        if self.used:
            return False
        self._blank += self._evict(len(self._cached))
        return True

    def events(self) -> list[CacheEvent]:
        """What was stored and removed since the last call, in order."""
        events, self._events = self._events, []
        return events

    def _evict(self, count: int) -> list[int]:
        """Forget the `count` blocks that are cached for longest."""
        oldest, by_name, copies, record = self._cached.popitem, self._by_name, self._copies, self._record
        evicted: list[int] = []
        for _ in range(count):
            block, name = oldest(last=False)
            if name in copies:
                self._forget(block, name)
            else:
                del by_name[name]
            evicted.append(block)
            if record:
                self._events.append(Removed(name))
        return evicted

    def _forget(self, block: int, name: int) -> None:
        """One of several copies of a name is gone."""
        copies = self._copies[name]
        if self._by_name[name] == block:
            self._by_name[name] = copies.pop()
        else:
            copies.remove(block)
        if not copies:
            del self._copies[name]
