"""A message head seen before: clients and engines say the same head again and again, save for one number.

A head that was parsed once is remembered as the bytes around the digits of its Content-Length. A message that
consists of just these bytes, some digits and a body of that length means the same, so it need not be parsed again.
Anything else, by a single byte, goes to the parser.
"""

from __future__ import annotations

import re

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,15})\r\n", re.IGNORECASE)
_MOST_DIGITS = 15


class Repeat:
    """The bytes before and after the digits; `after` ends with the empty line."""

    __slots__ = ("_after", "_before", "_first", "_last", "_rest")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after
        self._first = len(before)
        self._last = self._first + _MOST_DIGITS + 1
        self._rest = len(after)

    @classmethod
    def of(cls, head: bytes) -> Repeat | None:
        """Remember `head` (request or status line, fields, empty line); None where it names no single length."""
        found = _LENGTH.search(head)
        if found is None or not head.endswith(b"\r\n\r\n") or _LENGTH.search(head, found.end() - 2) is not None:
            return None
        return cls(head[: found.start(1)], head[found.end(1) :])

    def body_of(self, message: bytes) -> bytes | None:
        """The body of `message` if it is the same head and its whole body, nothing less and nothing more."""
        if not message.startswith(self._before):
            return None
        end = message.find(b"\r", self._first, self._last)
        if end < 0 or not message.startswith(self._after, end):
            return None
        digits = message[self._first : end]
        body = message[end + self._rest :]
        return body if digits.isdigit() and len(body) == int(digits) else None
