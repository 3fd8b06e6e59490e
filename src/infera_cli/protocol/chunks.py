"""Chunked framing as far as a relay may take it as read (RFC 9112 §7.1)."""

from __future__ import annotations

import re
from typing import Final

_size_line: Final = re.compile(rb"([0-9a-fA-F]{1,8})\r\n").match


def one_chunk(data: bytes) -> bytes | None:
    """The content of `data` if it is exactly one chunk, not the last one, without extensions; else None.

    Such bytes are what framing the content anew would give, so they may be passed on as they are.
    """
    line = _size_line(data)
    if line is None:
        return None
    size = int(line[1], 16)
    start = line.end()
    if size == 0 or len(data) != start + size + 2 or not data.endswith(b"\r\n"):
        return None
    return data[start:-2]
