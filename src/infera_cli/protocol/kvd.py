"""What the cache daemon hears and says (infera-wire §3.4): a length in four bytes, big end first, then a msgpack map.

One connection a call: hello, its answer, one prefetch hint that is never answered. No shared arena is asked for, so
no descriptor is ever passed (C38).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec

CLIENT = "infera-router-prefetch"
VERSION = 1
LONGEST = 1 << 20
"""Bytes of a frame that are still believed."""
_LENGTH = struct.Struct(">I")
HEADER_BYTES = _LENGTH.size


def frame(message: dict[str, Any]) -> bytes:
    """One message on the wire."""
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


def hello() -> bytes:
    """The first frame."""
    return frame(
        {"op": "hello", "client_id": CLIENT, "protocol_version": VERSION, "prefers_shared_arena": False}
    )


def prefetch_hint(keys: Sequence[bytes], model: str, compat_key: str, deadline_ms: int) -> bytes:
    """The second: these blocks will be wanted within `deadline_ms`."""
    told = {"keys": list(keys), "model": model, "compat_key": compat_key, "deadline_ms": deadline_ms}
    return frame({"op": "prefetch_hint", **told})


def length_of(header: bytes) -> int:
    """Bytes of the body that follows `header`. Raises ValueError for none, or too many."""
    length = int(_LENGTH.unpack(header)[0])
    if not 0 < length <= LONGEST:
        raise ValueError(f"a frame of {length} bytes")
    return length


def check_hello_ack(body: bytes) -> None:
    """Raises ValueError unless the daemon greeted back without an arena."""
    try:
        said = msgspec.msgpack.decode(body)
    except (msgspec.DecodeError, RecursionError) as wrong:
        raise ValueError(f"no msgpack: {wrong}") from None
    if not isinstance(said, dict) or said.get("op") != "hello_ack":
        what = said.get("message") or said.get("op") if isinstance(said, dict) else said
        raise ValueError(f"not greeted back, but told {str(what)[:100]!r}")
    if said.get("shared_arena") is not None:
        raise ValueError("it offered an arena that nobody asked for")
