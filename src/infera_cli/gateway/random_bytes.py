"""Random bytes for ids, fetched from the system a page at a time: a request needs two ids, not two system calls."""

from __future__ import annotations

import os

_PAGE = 4096


class RandomBytes:
    """A source of random bytes that no client can foresee."""

    __slots__ = ("_at", "_page")

    def __init__(self) -> None:
        self._page = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        """`count` fresh bytes, at most a page."""
        at = self._at
        if at + count > len(self._page):
            self._page = os.urandom(_PAGE)
            at = 0
        self._at = at + count
        return self._page[at : at + count]
