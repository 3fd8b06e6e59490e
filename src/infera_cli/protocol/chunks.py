"""Chunked framing as far as a relay may take it as read (RFC 9112 §7.1)."""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 16 << 10
"""Longer reads are left to the parser, so that no more size lines are remembered than there are lengths below."""
_size_lines: Final[dict[int, bytes]] = {}


def one_chunk(data: bytes) -> bytes | None:
    """The content of `data` if it is exactly one chunk, not the last one, with a plain size line; else None.

    Such bytes are what framing the content anew would give, so they may be passed on as they are.
    """
    length = len(data)
    line = _size_lines.get(length)
    if line is None:
        line = _size_lines[length] = _size_line(length) if length < _LONGEST else b""
    start = len(line)
    return data[start:-2] if start and data[:start] == line and data.endswith(b"\r\n") else None


def _size_line(length: int) -> bytes:
    """How a chunk begins that is `length` bytes long with its framing; empty where none is."""
    digits = 1
    while length - 4 - digits >= 1 << 4 * digits:
        digits += 1
    line = b"%x\r\n" % max(0, length - 4 - digits)
    return line if len(line) == digits + 2 and length - 4 - digits > 0 else b""
