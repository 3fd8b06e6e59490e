"""Chunked framing as far as a relay may take it as read (RFC 9112 §7.1)."""

from __future__ import annotations

from typing import Final

_SHORTEST: Final = 96
_LONGEST: Final = 16 << 10
"""Shorter and longer chunks are left to the parser: short ones may be less than an event, and of large ones
there are not many."""
_size_lines: Final[list[bytes | None]] = [None] * _LONGEST


def size_of_one_chunk(data: bytes) -> int:
    """The length of the content of `data` if it is exactly one chunk, not the last one, with a plain size line; else 0.

    Such bytes are what framing the content anew would give, so they may be passed on as they are.
    """
    length = len(data)
    if not _SHORTEST <= length < _LONGEST:
        return 0
    line = _size_line_of(length)
    if line and data.startswith(line) and data.endswith(b"\r\n"):
        return length - len(line) - 2
    return 0


def content_of(chunk: bytes) -> bytes:
    """What a chunk holds that `size_of_one_chunk` knows."""
    return chunk[len(_size_line_of(len(chunk))) : -2]


def _size_line_of(length: int) -> bytes:
    line = _size_lines[length]
    if line is None:
        line = _size_lines[length] = _size_line(length)
    return line


def _size_line(length: int) -> bytes:
    """How a chunk begins that is `length` bytes long with its framing; empty where none is."""
    digits = 1
    while length - 4 - digits >= 1 << 4 * digits:
        digits += 1
    line = b"%x\r\n" % max(0, length - 4 - digits)
    return line if len(line) == digits + 2 and length - 4 - digits > 0 else b""
