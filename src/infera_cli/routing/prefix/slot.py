"""One rank's share of the index: from the engine's own hashes to chained ones, copies, orphans, pages.

The engine's hash finds a block's parent and says what is removed; nothing else is believed of it (engines
§1.8.4). Pages under 16 tokens are joined to units of at least 16 (rulings 16).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

from xxhash import xxh3_64_intdigest

from infera_cli.blocks import FIRST_PARENT
from infera_cli.routing.prefix.identity import first_parent, mixed_in, of_block
from infera_cli.routing.prefix.orphans import Orphans, Run

SMALLEST_UNIT = 16

Part = tuple[int, bytes]
"""A page within a unit: the chained hash before the unit, and the unit's tokens so far, packed."""


def unit_of(block_size: int) -> int:
    """Tokens that are indexed as one, for pages of `block_size` tokens: the page, or several up to 16 tokens."""
    return block_size * -(-SMALLEST_UNIT // block_size)


class Slot:
    """What one rank of one worker holds. `bit` stands for it in the index; `unit` is None until it is known."""

    __slots__ = ("bit", "block_size", "blocks", "copies", "group", "name", "number", "orphans", "pending", "used")

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.bit = 1 << number
        self.block_size: int | None = None
        self.group: int | None = None
        self.blocks: dict[int, int | Part] = {}
        """Engine hash → chained hash, in the order of coming; a page that does not end its unit → what is before."""
        self.copies: dict[int, int] = {}
        """Engine hash → further copies, where there are any (engines §1.8.5)."""
        self.orphans = Orphans()
        self.pending: dict[int, float] = {}
        """Chained hash → when to give up, for blocks that were promised and not announced yet (rulings 16)."""
        self.used = 0.0

    @property
    def unit(self) -> int | None:
        """Tokens a chained hash stands for."""
        return None if self.block_size is None else unit_of(self.block_size)

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def waiting(self) -> int:
        """Events whose parent is unknown."""
        return self.orphans.count

    def takes(self, group: int | None, block_size: int, *, root: bool) -> bool:
        """Whether an event is of the group and page size that is indexed; the first one seen settles both.

        While no block is held, a root may settle them anew; what waits for a parent is then of no use any more.
        """
        if block_size == self.block_size and group == self.group:
            return True
        return self._is_open(root) or self._fits(group, block_size)

    def settle(self, group: int | None, block_size: int, *, root: bool) -> None:
        """An event that was taken is about to be entered."""
        if self._is_open(root):
            if not self._fits(group, block_size):
                self.orphans.clear()
            self.block_size, self.group = block_size, group

    def _is_open(self, root: bool) -> bool:
        return not self.blocks and (root or not self.orphans.count)

    def _fits(self, group: int | None, block_size: int) -> bool:
        return block_size == self.block_size and (group == self.group or group is None or self.group is None)

    # ── stored ───────────────────────────────────────────────────────────────────────────────────────
    def link(self, run: Run) -> list[int]:
        """Enter the run's blocks; the chained hashes that became held. The parent must be known."""
        block_size = self.block_size or 1
        if block_size < SMALLEST_UNIT:
            return self._link_pages(run, 4 * block_size, 4 * unit_of(block_size))
        return self._link_blocks(run, 4 * block_size)

    def _start(self, run: Run) -> int | Part:
        if run.parent is not None:
            return self.blocks[run.parent]
        if run.adapter is None and run.salt is None and run.extras is None:
            return FIRST_PARENT
        salt, extra = run.salt, run.extras[0] if run.extras is not None else None
        if extra is not None:
            salt, _ = of_block(extra, run.adapter, salt, first=True)
        return first_parent(run.adapter, salt)

    @staticmethod
    def _mixed(parent: int, run: Run, place: int) -> int:
        """`parent` with what else makes the run's block at `place`."""
        extra = run.extras[place] if run.extras is not None else None
        if extra is None:
            return parent
        first = place == 0 and run.parent is None
        return mixed_in(parent, of_block(extra, run.adapter, run.salt if first else None, first=first)[1])

    def _link_blocks(self, run: Run, width: int) -> list[int]:
        blocks, tokens, extras, at = self.blocks, run.tokens, run.extras, 0
        parent = self._start(run)
        assert isinstance(parent, int)  # noqa: S101 - whole blocks only in a slot of whole blocks
        fresh = []
        for place, key in enumerate(run.hashes):
            if extras is not None:
                parent = self._mixed(parent, run, place)
            parent = xxh3_64_intdigest(parent.to_bytes(8, "little") + tokens[at : at + width])
            at += width
            if key in blocks:
                self.copies[key] = self.copies.get(key, 0) + 1
            else:
                blocks[key] = parent
                fresh.append(parent)
        return fresh

    def _link_pages(self, run: Run, page: int, width: int) -> list[int]:
        start = self._start(run)
        before, part = start if isinstance(start, tuple) else (start, b"")
        fresh = []
        for place, key in enumerate(run.hashes):
            if run.extras is not None:
                before = self._mixed(before, run, place)
            part += run.tokens[place * page : (place + 1) * page]
            whole = len(part) == width
            if whole:
                before, part = xxh3_64_intdigest(before.to_bytes(8, "little") + part), b""
            if key in self.blocks:
                self.copies[key] = self.copies.get(key, 0) + 1
                continue
            self.blocks[key] = before if whole else (before, part)
            if whole:
                fresh.append(before)
        return fresh

    # ── removed ──────────────────────────────────────────────────────────────────────────────────────
    def unlink(self, key: int) -> int | None:
        """One copy of an engine's block is gone: the chained hash that is held no longer, None when none is.

        Raises KeyError for a block that is not known.
        """
        more = self.copies.get(key)
        if more is not None:
            if more > 1:
                self.copies[key] = more - 1
            else:
                del self.copies[key]
            return None
        held = self.blocks.pop(key)
        return held if isinstance(held, int) else None

    def pop_tail(self) -> int | None:
        """Forget the block that came last; nothing known can follow it. Returns what is held no longer."""
        key, held = self.blocks.popitem()
        self.copies.pop(key, None)
        return held if isinstance(held, int) else None


def pack(tokens: Sequence[int]) -> bytes:
    """Tokens as four bytes each, little-endian. Raises struct.error for what is no token id."""
    return _packing(len(tokens)).pack(*tokens)


@lru_cache(maxsize=64)
def _packing(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")
