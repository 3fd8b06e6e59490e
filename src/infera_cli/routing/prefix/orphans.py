"""Events of one rank whose parent is unknown: they wait for it, within a bound (rulings 17; R082).

A router that starts beside a warm engine has its fill of them and then hears mostly removals, so each removed hash
is looked up, never searched for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

BLOCK_BYTES = 100
"""What one entry of one map takes: a dict entry at usual load, and its key of 64 bits."""
ORPHANS_KEPT = 512
"""Runs whose parent is unknown are kept, so many a rank."""
PIECE = 64
"""Blocks of a run that waits; a longer one is several, so that none is long to search or to shorten."""


class Run(msgspec.Struct, gc=False, eq=False):
    """A stored event as the index takes it. `tokens` are packed, four bytes each."""

    parent: int | None
    hashes: Sequence[int]
    tokens: bytes
    adapter: str | None = None
    salt: str | None = None
    extras: Sequence[Sequence[Any] | None] | None = None

    def part(self, start: int, end: int) -> Run:
        """Its blocks from `start` up to `end`; `start` is above 0, or the parent stays."""
        width = len(self.tokens) // len(self.hashes)
        extras = self.extras[start:end] if self.extras is not None else None
        parent = self.hashes[start - 1] if start else self.parent
        return Run(
            parent, self.hashes[start:end], self.tokens[start * width : end * width], self.adapter, self.salt, extras
        )


class Orphans:
    """Runs in order of coming; the oldest leave first. `bytes` estimates what they take."""

    __slots__ = ("_further", "_runs", "_with", "bytes", "count")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self._runs: dict[int, list[Run]] = {}
        self._with: dict[int, Run] = {}
        """Hash → the first run that has it."""
        self._further: dict[int, list[Run]] = {}
        """Hash → the runs after that one, where there are any."""

    def __len__(self) -> int:
        return self.count

    def clear(self) -> None:
        """Forget them all."""
        self.count = self.bytes = 0
        self._runs.clear()
        self._with.clear()
        self._further.clear()

    def keep(self, run: Run) -> bool:
        """Hold a run until its parent comes; False when older ones had to go for it."""
        length, room = len(run.hashes), True
        if length <= PIECE:
            return self._keep(run)
        for start in range(0, length, PIECE):
            room = self._keep(run.part(start, min(start + PIECE, length))) and room
        return room

    def _keep(self, run: Run) -> bool:
        parent = run.parent
        assert parent is not None  # noqa: S101 - a run without a parent is no orphan
        room = self.count < ORPHANS_KEPT
        if not room:
            self.drop_oldest()
        self._runs.setdefault(parent, []).append(run)
        for key in run.hashes:
            if key in self._with:
                self._further.setdefault(key, []).append(run)
            else:
                self._with[key] = run
        self.count += 1
        self.bytes += _weight(run)
        return room

    def drop_oldest(self) -> None:
        """Forget the run that came first under the parent that came first."""
        runs = self._runs[next(iter(self._runs))]
        self._drop(runs[0])

    def adopted(self, hashes: Sequence[int]) -> list[Run]:
        """Those whose parent is among `hashes`; they are held no longer."""
        found: list[Run] = []
        for key in hashes:
            runs = self._runs.pop(key, None)
            if runs is not None:
                for run in runs:
                    self._left(run)
                found += runs
        return found

    def removed(self, key: int) -> bool:
        """A block was removed that may be in one of them: what follows it there waits for it to come again."""
        run = self._with.get(key)
        if run is None:
            return False
        at, length = run.hashes.index(key), len(run.hashes)
        if not at:
            self._forget_first(run)
            return True
        rest = run.part(at + 1, length) if at + 1 < length else None
        self._become(run, run.part(0, at), run.hashes[at:])
        if rest is not None:
            self._keep(rest)
        return True

    def _forget_first(self, run: Run) -> None:
        self._unlist(run)
        if len(run.hashes) == 1:
            self._left(run)
            return
        key = run.hashes[0]
        self._become(run, run.part(1, len(run.hashes)), run.hashes[:1])
        self._runs.setdefault(key, []).append(run)

    def _become(self, run: Run, other: Run, without: Sequence[int]) -> None:
        """The same run, shorter; its blocks that stay are not noted anew."""
        self._unnote(run, without)
        self.bytes += _weight(other) - _weight(run)
        run.parent, run.hashes, run.tokens, run.extras = other.parent, other.hashes, other.tokens, other.extras

    def _drop(self, run: Run) -> None:
        self._unlist(run)
        self._left(run)

    def _unlist(self, run: Run) -> None:
        parent = run.parent
        assert parent is not None  # noqa: S101 - see _keep
        runs = self._runs[parent]
        runs.remove(run)
        if not runs:
            del self._runs[parent]

    def _left(self, run: Run) -> None:
        self._unnote(run, run.hashes)
        self.bytes -= _weight(run)
        self.count -= 1

    def _unnote(self, run: Run, hashes: Sequence[int]) -> None:
        for key in hashes:
            further = self._further.get(key)
            if self._with[key] is not run:
                if further is not None:
                    further.remove(run)
            elif further is not None:
                self._with[key] = further.pop(0)
            else:
                del self._with[key]
            if further is not None and not further:
                del self._further[key]


def _weight(run: Run) -> int:
    return len(run.hashes) * BLOCK_BYTES + len(run.tokens)
