"""Which node holds which prefixes, as far as a router can know (replica-router §2.6).

Set when a node answered; forgotten when it goes offline, restarts, runs out of memory or gets full. Nodes go by
their worker number.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import NamedTuple

from infera_cli.routing.work import Work

KEPT = 4096
"""Prefixes remembered of a node; the least recently used one leaves first."""

SHED_SHARE = 0.1
SHED_SECONDS = 30.0


class Held(NamedTuple):
    """One prefix on one node."""

    tokens: int
    used: float
    pinned: bool


class Residency:
    """The directory of all nodes. `pin` exempts system prompts from leaving until only they remain."""

    __slots__ = ("_held", "_pinned", "_shed_at", "_who", "kept", "pin")

    def __init__(self, *, pin: bool = True, kept: int = KEPT) -> None:
        self.pin = pin
        self.kept = kept
        self._held: dict[int, OrderedDict[int, Held]] = {}
        self._pinned: dict[int, OrderedDict[int, Held]] = {}
        self._who: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._shed_at: dict[int, float] = {}

    def known(self, chain: tuple[int, ...]) -> dict[int, int]:
        """Worker number → tokens of the longest prefix of `chain` that it holds; changes nothing."""
        found: dict[int, int] = {}
        who = self._who
        for name in reversed(chain):
            holders = who.get(name)
            if holders:
                for number, tokens in holders.items():
                    found.setdefault(number, tokens)
        return found

    def learn(self, number: int, work: Work, now: float) -> None:
        """The node answered this request, so it holds all of its prefixes now."""
        for place, (name, tokens) in enumerate(zip(work.chain, work.sizes, strict=True)):
            self._put(number, name, Held(tokens, now, self.pin and place < work.pinned))

    def forget(self, number: int) -> None:
        """The node's cache is gone."""
        for shelf in (self._held, self._pinned):
            for name in shelf.pop(number, ()):
                self._unlist(number, name)
        self._shed_at.pop(number, None)

    def shed(self, number: int, now: float) -> int:
        """The node is over its threshold: forget the oldest tenth of what is not pinned, at most every 30 s.

        Returns how many prefixes that were.
        """
        if now - self._shed_at.get(number, -SHED_SECONDS) < SHED_SECONDS:
            return 0
        self._shed_at[number] = now
        shelf = self._held.get(number)
        if not shelf:
            return 0
        count = -int(-len(shelf) * SHED_SHARE // 1)
        for _ in range(count):
            name, _held = shelf.popitem(last=False)
            self._unlist(number, name)
        return count

    def held(self, number: int, name: int) -> Held | None:
        """What the node holds under that name."""
        for shelf in (self._pinned, self._held):
            found = shelf.get(number, _NONE).get(name)
            if found is not None:
                return found
        return None

    def count(self, number: int) -> int:
        """Prefixes held by the node."""
        return len(self._held.get(number, ())) + len(self._pinned.get(number, ()))

    def _put(self, number: int, name: int, held: Held) -> None:
        own, other = (self._pinned, self._held) if held.pinned else (self._held, self._pinned)
        if not held.pinned and name in other.get(number, _NONE):
            own, held = other, held._replace(pinned=True)  # a system prompt stays one
        elif held.pinned and number in other:
            other[number].pop(name, None)
        shelf = own.setdefault(number, OrderedDict())
        shelf[name] = held
        shelf.move_to_end(name)
        self._who[name][number] = held.tokens
        if self.count(number) > self.kept:
            oldest = self._held.get(number) or self._pinned[number]
            gone, _held = oldest.popitem(last=False)
            self._unlist(number, gone)

    def _unlist(self, number: int, name: int) -> None:
        holders = self._who.get(name)
        if holders is not None:
            holders.pop(number, None)
            if not holders:
                del self._who[name]


_NONE: OrderedDict[int, Held] = OrderedDict()
