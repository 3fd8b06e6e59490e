"""How many different blocks a target's open requests have between them (infera-wire §4.4, S52).

A chained hash stands for all before it, so two prompts share a beginning and nothing else. What is open is kept as a
tree of stretches: a prompt adds or removes in a few steps, however long it is.
"""

from __future__ import annotations

from collections.abc import Sequence


class _Stretch:
    """Blocks `begin` to `end` of `chain`, which `users` open prompts have; `after` are what may follow, by their
    first hash."""

    __slots__ = ("after", "begin", "chain", "end", "users")

    def __init__(self, chain: Sequence[int], begin: int, end: int, users: int, after: dict[int, _Stretch]) -> None:
        self.chain = chain
        self.begin = begin
        self.end = end
        self.users = users
        self.after = after


class ActiveBlocks:
    """Distinct blocks of prompts that come and go; `count` of them are there now."""

    __slots__ = ("_roots", "count")

    def __init__(self) -> None:
        self.count = 0
        self._roots: dict[int, _Stretch] = {}

    def __len__(self) -> int:
        return self.count

    def add(self, chain: Sequence[int]) -> None:
        """A prompt begins."""
        at, length, level = 0, len(chain), self._roots
        while at < length:
            stretch = level.get(chain[at])
            if stretch is None:
                level[chain[at]] = _Stretch(chain, at, length, 1, {})
                self.count += length - at
                return
            at = _shared(stretch, chain)
            if at < stretch.end:
                _split(stretch, at)
            stretch.users += 1
            level = stretch.after

    def remove(self, chain: Sequence[int]) -> None:
        """A prompt that began is over."""
        at, length, level = 0, len(chain), self._roots
        above: _Stretch | None = None
        while at < length:
            stretch = level[chain[at]]
            stretch.users -= 1
            if not stretch.users:  # nobody has what follows either
                del level[chain[at]]
                self.count -= length - at
                if above is not None:
                    _join(above)
                return
            at, level, above = stretch.end, stretch.after, stretch
        if above is not None:
            _join(above)


def _shared(stretch: _Stretch, chain: Sequence[int]) -> int:
    """Where `chain`, whose block at `begin` is the stretch's, goes another way; at most its `end`."""
    own = stretch.chain
    low, high = stretch.begin + 1, min(stretch.end, len(chain))
    if high > low and own[high - 1] == chain[high - 1]:
        return high
    while low < high:
        middle = (low + high) // 2
        if own[middle] == chain[middle]:
            low = middle + 1
        else:
            high = middle
    return low


def _split(stretch: _Stretch, at: int) -> None:
    rest = _Stretch(stretch.chain, at, stretch.end, stretch.users, stretch.after)
    stretch.end = at
    stretch.after = {rest.chain[at]: rest}


def _join(stretch: _Stretch) -> None:
    """Undo a split that nobody needs any more."""
    if len(stretch.after) == 1:
        (only,) = stretch.after.values()
        if only.users == stretch.users:
            stretch.chain, stretch.end, stretch.after = only.chain, only.end, only.after
