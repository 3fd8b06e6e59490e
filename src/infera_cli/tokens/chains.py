"""Hash chains of prompts that come in pieces; a conversation's next turn only pays for what is new in it.

Chains are tuples that the garbage collector does not look at: a look at each number of a hundred prompts takes tens
of milliseconds, during which nobody else is served.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Sequence

from xxhash import xxh3_64_intdigest

from infera_cli.blocks import FIRST_PARENT, chain_packed
from infera_cli.tokens.memo import Memo

__all__ = ["FIRST_PARENT", "Chains"]

CHAIN_BYTES = 64 << 20
_HASH_BYTES = 48
"""What a hash in a list takes: a reference, and the integer."""

Piece = tuple[int, bytes]
"""A key that stands for the piece's content, 0 for none, and its packed tokens."""


class Chains:
    """Chains by the pieces they were made of."""

    def __init__(self, limit: int = CHAIN_BYTES) -> None:
        self._known: Memo[tuple[int, int], tuple[tuple[int, ...], bytes]] = Memo(limit)

    def of(self, pieces: Sequence[Piece], block_size: int, first: int = FIRST_PARENT) -> tuple[int, ...]:
        """Hashes of the full blocks of all pieces in a row."""
        trail = _trail(pieces, first)
        hashes: tuple[int, ...] = ()
        rest, begun = b"", 0
        for at in range(len(trail), 0, -1):
            found = self._known.get((trail[at - 1], block_size))
            if found is not None:
                hashes, rest, begun = found[0], found[1], at
                break
        parent = hashes[-1] if hashes else first
        if begun < len(trail):
            # All pieces that bear a key but the last: a next turn begins with those.
            body = rest + b"".join(packed for _, packed in pieces[begun : len(trail)])
            hashes, rest = self._extend(hashes, body, block_size, parent)
            self._known.put((trail[-1], block_size), (hashes, rest), len(hashes) * _HASH_BYTES + len(rest))
            parent = hashes[-1] if hashes else first
        tail = rest + b"".join(packed for _, packed in pieces[len(trail) :])
        return self._extend(hashes, tail, block_size, parent)[0]

    @staticmethod
    def _extend(
        hashes: tuple[int, ...], packed: bytes, block_size: int, parent: int
    ) -> tuple[tuple[int, ...], bytes]:
        more = chain_packed(packed, block_size, parent)
        return untracked(hashes + tuple(more)), packed[4 * block_size * len(more) :]


def untracked(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """The same tuple, out of sight of the garbage collector, as it would put it itself once it had looked: what holds
    nothing but numbers is part of no cycle."""
    if _untrack is not None and numbers:
        _untrack(numbers)
    return numbers


def _untracking() -> Callable[[object], None] | None:
    if platform.python_implementation() != "CPython":
        return None
    call = ctypes.pythonapi.PyObject_GC_UnTrack
    call.argtypes, call.restype = [ctypes.py_object], None
    return call


_untrack = _untracking()


def _trail(pieces: Sequence[Piece], first: int) -> list[int]:
    """A key for each beginning of `pieces` that may be met again, without the last piece unless there is no other."""
    trail, running = [], first
    for key, _ in pieces[:-1] or pieces:
        if not key:
            break
        running = xxh3_64_intdigest(key.to_bytes(8, "little"), seed=running)
        trail.append(running)
    return trail
