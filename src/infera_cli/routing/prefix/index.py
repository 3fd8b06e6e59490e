"""The index: one flat map from a chained block hash to the ranks that hold it, as bits of an integer.

A chained hash stands for its whole prefix, so there is no tree; what all workers hold of a prompt is one walk
over its hashes (design.md §4). Equal sets of ranks share one integer, so the walk compares identities.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

from infera_cli.routing.prefix.orphans import BLOCK_BYTES, Orphans, Run
from infera_cli.routing.prefix.slot import Slot, pack

_FIRST_STEP = 512
_AT_ONCE = 4096
"""Blocks that are forgotten within one call; more are forgotten bit by bit by `tidy`."""
_SETS = 4096
"""Different sets of ranks that may be remembered before those no longer in use are forgotten."""
_PROMISED_SHARE = 4
"""Promises take at most one part in so many of the limit; what is promised beyond that counts as not held."""
_SLACK = 0.02
"""How far under its limit the index is brought when it is over."""


class Taken(NamedTuple):
    """What became of an event: blocks that are held now, and whether it waits for its parent or was refused."""

    blocks: int = 0
    orphan: bool = False
    refused: bool = False


_REFUSED = Taken(refused=True)
_ORPHAN = Taken(orphan=True)
_TAKEN_MOST = 130
_TAKEN = [Taken(count) for count in range(_TAKEN_MOST)]


class PrefixIndex:
    """Who holds which prefix. `max_bytes` bounds all maps together, None: nothing does.

    Times are seconds of the caller's clock. Over the limit, the rank whose blocks were not wanted for longest
    loses the blocks that came last to it: tails, so that what stays is still a prefix.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self.max_bytes = max_bytes
        self.evicted = 0
        self.slots: dict[int, Slot] = {}
        self._holders: dict[int, int] = {}
        self._sets: dict[int, int] = {}
        self._sets_most = _SETS
        self._free: list[int] = []
        self._numbers = 0
        self._dead: deque[tuple[int, list[int]]] = deque()
        self._entries = 0
        self._promised = 0
        self._waiting = 0

    def __len__(self) -> int:
        """Different blocks that somebody holds."""
        return len(self._holders)

    @property
    def size(self) -> int:
        """Estimated bytes of all maps."""
        return (self._entries + self._promised + len(self._holders)) * BLOCK_BYTES + self._waiting

    # ── ranks come and go ────────────────────────────────────────────────────────────────────────────
    def open(self, name: str) -> Slot:
        """A place for one rank of one worker."""
        slot = Slot(name, self._number())
        slot.bit = self._shared(slot.bit)
        self.slots[slot.number] = slot
        return slot

    def close(self, slot: Slot) -> None:
        """The worker left. What still knows its slot changes nothing any more: the number is given to another."""
        self._bury(slot)
        del self.slots[slot.number]
        slot.bit = 0
        slot.blocks, slot.copies, slot.orphans, slot.pending = {}, {}, Orphans(), {}

    def clear(self, slot: Slot) -> None:
        """The rank holds nothing, as far as anybody knows."""
        if not slot.blocks and not slot.pending:
            self._waiting -= slot.orphans.bytes
            slot.orphans.clear()
            return
        del self.slots[slot.number]
        self._bury(slot)
        slot.number = self._number()
        slot.bit = self._shared(1 << slot.number)
        slot.blocks, slot.copies, slot.orphans, slot.pending = {}, {}, Orphans(), {}
        self.slots[slot.number] = slot

    def _number(self) -> int:
        if self._free:
            return self._free.pop()
        self._numbers += 1
        return self._numbers - 1

    def _bury(self, slot: Slot) -> None:
        """Nobody asks for this number any more; its bits are taken out by and by, then it is given out again."""
        held = [hash_ for hash_ in slot.blocks.values() if isinstance(hash_, int)]
        held += slot.pending
        self._entries -= len(slot.blocks)
        self._promised -= len(slot.pending)
        self._waiting -= slot.orphans.bytes
        self._dead.append((slot.number, held))
        self.tidy(_AT_ONCE)

    def tidy(self, budget: int = _AT_ONCE) -> bool:
        """Forget up to `budget` blocks of ranks that are gone; True while there are more."""
        while self._dead and budget > 0:
            number, held = self._dead[0]
            bit = 1 << number
            some, held[-budget:] = held[-budget:], []
            budget -= len(some)
            for hash_ in some:
                self._discard(hash_, bit)
            if not held:
                self._dead.popleft()
                self._free.append(number)
        return bool(self._dead)

    # ── events ───────────────────────────────────────────────────────────────────────────────────────
    def store(
        self, slot: Slot, parent: int | None, hashes: Sequence[int], tokens: Sequence[int], block_size: int,
        *, adapter: str | None = None, salt: str | None = None,
        extras: Sequence[Sequence[Any] | None] | None = None, group: int | None = None, now: float = 0.0,
    ) -> Taken:  # fmt: skip
        """Blocks of one sequence were stored; their hashes are the engine's, the tokens those of all of them.

        Refused are events that do not add up, since what cannot be removed again must not be held.
        """
        length = len(hashes)
        root = parent is None
        if not length or len(tokens) != length * block_size or not slot.takes(group, block_size, root=root):
            return _REFUSED
        if not slot.bit or (extras is not None and len(extras) != length):
            return _REFUSED
        try:
            run = Run(parent, hashes, pack(tokens), adapter, salt, extras)
        except struct.error:
            return _REFUSED
        waiting = slot.orphans.bytes
        if block_size != slot.block_size or group != slot.group:
            slot.settle(group, block_size, root=root)
        slot.used = now if now > slot.used else slot.used  # noqa: FURB136 - a call a block
        if parent is not None and parent not in slot.blocks:
            slot.orphans.keep(run)
            count = -1
        else:
            count = self._enter(slot, run)
        if waiting or count < 0:
            self._waiting += slot.orphans.bytes - waiting
        if (
            self.max_bytes is not None
            and (self._entries + self._promised + len(self._holders)) * BLOCK_BYTES + self._waiting > self.max_bytes
        ):
            self._shrink(self.max_bytes)
        if count < 0:
            return _ORPHAN
        return _TAKEN[count] if count < _TAKEN_MOST else Taken(count)

    def _enter(self, slot: Slot, run: Run) -> int:
        blocks = slot.blocks
        before = len(blocks)
        fresh = slot.link(run)
        orphans = slot.orphans
        if orphans.count:
            runs = orphans.adopted(run.hashes)
            while runs:
                run = runs.pop()
                fresh += slot.link(run)
                runs += orphans.adopted(run.hashes)
        self._entries += len(blocks) - before
        holders, bit = self._holders, slot.bit
        for hash_ in fresh:
            others = holders.setdefault(hash_, bit)
            if not others & bit:
                holders[hash_] = self._shared(others | bit)
        if slot.pending:  # promises that came true
            promised = len(slot.pending)
            for hash_ in fresh:
                slot.pending.pop(hash_, None)
            self._promised -= promised - len(slot.pending)
        return len(fresh)

    def remove(self, slot: Slot, hashes: Iterable[int], group: int | None = None) -> int:
        """Copies of blocks are gone; returns how many of `hashes` were not known."""
        if group is not None and slot.group is not None and group != slot.group:
            return 0
        unknown, orphans = 0, slot.orphans
        waiting = orphans.bytes
        for key in hashes:
            try:
                entries = len(slot.blocks)
                gone = slot.unlink(key)
                self._entries -= entries - len(slot.blocks)
            except KeyError:
                unknown += not orphans.removed(key)
                continue
            if gone is not None:
                self._discard(gone, slot.bit)
        if waiting:
            self._waiting += orphans.bytes - waiting
        return unknown

    # ── credit ───────────────────────────────────────────────────────────────────────────────────────
    def promise(self, slot: Slot, hashes: Sequence[int], start: int, until: float) -> None:
        """A prompt was routed there: its blocks from place `start` on count as held, `until` it lapses."""
        bit, pending, holders, limit = slot.bit, slot.pending, self._holders, self.max_bytes
        if not bit:
            return
        before = len(pending)
        room = len(hashes) if limit is None else limit // _PROMISED_SHARE // (2 * BLOCK_BYTES) - self._promised
        for hash_ in hashes[start:]:
            if hash_ in pending:
                pending[hash_] = until
            elif not holders.get(hash_, 0) & bit:
                if len(pending) - before >= room:
                    break
                self._add(hash_, bit)
                pending[hash_] = until
        self._promised += len(pending) - before
        if limit is not None and self.size > limit:
            self._shrink(limit)

    def lapse(self, slot: Slot, hashes: Sequence[int], start: int, until: float) -> int:
        """Promises among `hashes` that hold no longer than `until` are void; returns how many."""
        void = 0
        if slot.pending:
            for hash_ in hashes[start:]:
                if slot.pending.get(hash_, until + 1.0) <= until:
                    del slot.pending[hash_]
                    self._discard(hash_, slot.bit)
                    void += 1
        self._promised -= void
        return void

    # ── questions ────────────────────────────────────────────────────────────────────────────────────
    def depths(self, hashes: Sequence[int], among: int) -> list[tuple[int, int]]:
        """How far the ranks of `among` (bits) hold `hashes` from the first on: (bits, blocks), shallow first.

        Ranks that hold not even the first are left out.
        """
        get, found = self._holders.get, []
        at, place, step, count = 0, 0, _FIRST_STEP, len(hashes)
        if count:
            among &= get(hashes[0], 0)
        while at < count and among:
            # In C: equal sets are one object, and most of a piece is one run.
            piece = list(map(get, hashes[at : at + step], repeat(0)))
            for end, bits in _runs(piece):
                stay = among & bits
                if stay != among:
                    if place:
                        found.append((among ^ stay, place))
                    among = stay
                    if not among:
                        break
                place = at + end
            at += step
            step *= 2
        if among and count:
            found.append((among, count))
        return found

    def holds(self, slot: Slot, hash_: int) -> bool:
        """Whether the rank holds that block, or was promised it."""
        return bool(self._holders.get(hash_, 0) & slot.bit)

    # ── within ───────────────────────────────────────────────────────────────────────────────────────
    def _add(self, hash_: int, bit: int) -> None:
        before = self._holders.get(hash_, 0)
        after = before | bit
        if after != before:
            self._holders[hash_] = self._shared(after)

    def _shared(self, bits: int) -> int:
        """The one integer of that value that all entries use."""
        if len(self._sets) > self._sets_most:
            self._sets = {used: used for used in self._holders.values()}
            for slot in self.slots.values():
                slot.bit = self._sets.setdefault(slot.bit, slot.bit)
            self._sets_most = 2 * len(self._sets) + _SETS
        return self._sets.setdefault(bits, bits)

    def _discard(self, hash_: int, bit: int) -> None:
        before = self._holders.get(hash_, 0)
        after = before & ~bit
        if after == before:
            return
        if after:
            self._holders[hash_] = self._shared(after)
        else:
            del self._holders[hash_]

    def _shrink(self, limit: int) -> None:
        goal = int(limit * (1 - _SLACK))
        while self.size > goal:
            if self._dead:
                self.tidy()
                continue
            held = [slot for slot in self.slots.values() if slot.blocks or slot.orphans.count]
            slot = min(held, key=lambda s: s.used, default=None)
            if slot is None:
                return
            while slot.orphans.count and self.size > goal:  # hits of nobody
                before = slot.orphans.bytes
                slot.orphans.drop_oldest()
                self._waiting -= before - slot.orphans.bytes
            while slot.blocks and self.size > goal:
                gone = slot.pop_tail()
                self._entries -= 1
                self.evicted += 1
                if gone is not None:
                    self._discard(gone, slot.bit)


def _runs(piece: list[int]) -> Iterator[tuple[int, int]]:
    """Where each run of one and the same integer ends, and the integer.

    An end is guessed by doubling and halving, and the run is then counted: what a rank holds is nearly always a
    beginning, but has a hole now and then.
    """
    at, count = 0, len(piece)
    while at < count:
        bits, low, high, stride = piece[at], at, at + 1, 1
        while high < count and piece[high] is bits:
            low, high, stride = high, high + stride, 2 * stride
        high = min(high, count)
        while high - low > 1:
            middle = (low + high) // 2
            if piece[middle] is bits:
                low = middle
            else:
                high = middle
        if piece[at:high].count(bits) != high - at:
            high = next(place for place in range(at, high) if piece[place] is not bits)
        yield high, bits
        at = high
