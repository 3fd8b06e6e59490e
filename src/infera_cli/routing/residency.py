"""Which node holds which prefixes, as far as a router can know (replica-router §2.6).

Set when a node answered; forgotten when it goes offline, restarts, runs out of memory or gets full. Nodes go by
their worker number.
"""

from __future__ import annotations

from collections import OrderedDict

from infera_cli.routing.work import Work

KEPT = 4096
"""Prefixes remembered of a node; the least recently used one leaves first."""

SHED_SHARE = 0.1
SHED_SECONDS = 30.0

Shelf = OrderedDict[int, int]
"""Name → tokens, least recently used first."""


class Residency:
    """The directory of all nodes. `pin` exempts system prompts from leaving until only they remain."""

    __slots__ = ("_loose", "_pinned", "_shed_at", "_who", "kept", "pin")

    def __init__(self, *, pin: bool = True, kept: int = KEPT) -> None:
        self.pin = pin
        self.kept = kept
        self._loose: dict[int, Shelf] = {}
        self._pinned: dict[int, Shelf] = {}
        self._who: dict[int, dict[int, int]] = {}
        self._shed_at: dict[int, float] = {}

    def known(self, chain: tuple[int, ...]) -> dict[int, int]:
        """Worker number → tokens of the longest prefix of `chain` that it holds; changes nothing."""
        found: dict[int, int] = {}
        who = self._who
        for name in reversed(chain):
            holders = who.get(name)
            if holders is not None:
                if not found:
                    found = dict(holders)
                else:
                    for number, tokens in holders.items():
                        found.setdefault(number, tokens)
        return found

    def learn(self, number: int, work: Work) -> None:
        """The node answered this request, so it holds all of its prefixes now, as the most recently used ones."""
        loose, pinned = self._loose.get(number), self._pinned.get(number)
        if loose is None or pinned is None:
            loose = self._loose[number] = OrderedDict()
            pinned = self._pinned[number] = OrderedDict()
        most = work.pinned if self.pin else 0
        for place, name in enumerate(work.chain):
            if name in pinned:
                pinned.move_to_end(name)
            elif name in loose and place >= most:
                loose.move_to_end(name)
            else:
                tokens = work.sizes[place]
                loose.pop(name, None)
                shelf = pinned if place < most else loose
                shelf[name] = tokens
                self._who.setdefault(name, {})[number] = tokens
        while len(loose) + len(pinned) > self.kept:
            self._unlist(number, (loose or pinned).popitem(last=False)[0])

    def forget(self, number: int) -> None:
        """The node's cache is gone."""
        for shelves in (self._loose, self._pinned):
            for name in shelves.pop(number, None) or ():
                self._unlist(number, name)
        self._shed_at.pop(number, None)

    def shed(self, number: int, now: float) -> int:
        """The node is over its threshold: forget the oldest tenth of what is not pinned, at most every 30 s.

        Returns how many prefixes that were.
        """
        if now - self._shed_at.get(number, -SHED_SECONDS) < SHED_SECONDS:
            return 0
        self._shed_at[number] = now
        loose = self._loose.get(number)
        count = -int(-len(loose) * SHED_SHARE // 1) if loose else 0
        for _ in range(count):
            if loose:
                self._unlist(number, loose.popitem(last=False)[0])
        return count

    def is_pinned(self, number: int, name: int) -> bool:
        """Whether the node holds it as a system prompt."""
        return name in (self._pinned.get(number) or ())

    def count(self, number: int) -> int:
        """Prefixes held by the node."""
        return len(self._loose.get(number) or ()) + len(self._pinned.get(number) or ())

    def _unlist(self, number: int, name: int) -> None:
        holders = self._who.get(name)
        if holders is not None:
            holders.pop(number, None)
            if not holders:
                del self._who[name]
