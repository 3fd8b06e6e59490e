"""A message head seen before: clients and engines say the same head again and again, save for a value or two.

A head that was parsed once is remembered as the bytes around the digits of its Content-Length and, in a request,
around its X-Session-Id. A message that consists of just these bytes, with digits and a sound id in their places and a
body of that length, means the same but for the two, so it need not be parsed again. Anything else, by a single byte,
goes to the parser.
"""

from __future__ import annotations

import re
from typing import Final

from infera_cli.protocol.headers import is_sound_id

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,15})\r\n", re.IGNORECASE)
_SESSION = re.compile(rb"\r\nx-session-id:[ \t]*([A-Za-z0-9._:-]{1,128})\r\n", re.IGNORECASE)
_SESSION_NAME = re.compile(rb"\r\nx-session-id:", re.IGNORECASE)
_LONGEST_ID: Final = 128
_END = b"\r\n\r\n"


class Repeat:
    """The bytes before and after the digits; the latter end with the empty line."""

    __slots__ = ("_after", "_before", "_fixed", "_head", "_length")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after
        self._fixed = len(before) + len(after)
        self._length = -1
        self._head = b""  # the whole head of a message with a body of that length

    @classmethod
    def of(cls, head: bytes) -> Repeat | None:
        """Remember `head` (request or status line, fields, empty line); None where it names no single length."""
        found = _single_length(head)
        return None if found is None else cls(head[: found.start(1)], head[found.end(1) :])

    def body_of(self, message: bytes) -> bytes | None:
        """The body of `message` if it is the same head and its whole body, nothing less and nothing more."""
        length = _length_beside_its_digits(len(message) - self._fixed)
        if length < 0:
            return None
        if length != self._length:
            self._length = length
            self._head = b"%b%d%b" % (self._before, length, self._after)
        head = self._head
        size = len(head)
        return message[size:] if message[:size] == head else None


def _length_beside_its_digits(room: int) -> int:
    """The n that fills `room` together with its own decimal digits; −1 where there is none."""
    digits, below = 1, 10
    while room - digits >= below:
        digits += 1
        below *= 10
    length = room - digits
    return length if length >= 0 and (digits == 1 or length * 10 >= below) else -1


class SessionRepeat:
    """The bytes before, between and after the digits and the session id, whichever comes first."""

    __slots__ = ("_after", "_before", "_between", "_first", "_length_first", "_rest")

    def __init__(self, before: bytes, between: bytes, after: bytes, *, length_first: bool) -> None:
        self._before = before
        self._between = between
        self._after = after
        self._length_first = length_first
        self._first = len(before)
        self._rest = len(after)

    @classmethod
    def of(cls, head: bytes) -> SessionRepeat | None:
        """Remember the head of a request; None where it names no single length or no single, sound session."""
        length, session = _single_length(head), _SESSION.search(head)
        if length is None or session is None or len(_SESSION_NAME.findall(head)) != 1:
            return None
        (a, b), (c, d) = sorted((length.span(1), session.span(1)))
        return cls(head[:a], head[b:c], head[d:], length_first=a == length.start(1))

    def told_by(self, message: bytes) -> tuple[bytes, bytes] | None:
        """Session and body of `message` if it is the same head but for the session, and its whole body."""
        first = self._first
        if message[:first] != self._before:
            return None
        end = message.find(b"\r", first, first + _LONGEST_ID + 1)
        second = end + len(self._between)
        if end < 0 or message[end:second] != self._between:
            return None
        last = message.find(b"\r", second, second + _LONGEST_ID + 1)
        begin = last + self._rest
        if last < 0 or message[last:begin] != self._after:
            return None
        session, digits = message[first:end], message[second:last]
        if self._length_first:
            session, digits = digits, session
        if digits != b"%d" % (len(message) - begin) or not (session.isalnum() or is_sound_id(session)):
            return None
        return session, message[begin:]


def _single_length(head: bytes) -> re.Match[bytes] | None:
    found = _LENGTH.search(head)
    if found is None or not head.endswith(_END) or _LENGTH.search(head, found.end() - 2) is not None:
        return None
    return found
