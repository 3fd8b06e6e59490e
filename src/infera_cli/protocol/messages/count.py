"""Token counts: an engine's `/tokenize` answer as Anthropic's (engines.md §1.5; R056)."""

from __future__ import annotations

import msgspec


class _Counted(msgspec.Struct, frozen=True):
    count: int


def to_count(body: bytes) -> bytes:
    """`{"input_tokens": N}`. Raises ValueError when `body` holds no count."""
    try:
        return count_body(msgspec.json.decode(body, type=_Counted).count)
    except (msgspec.DecodeError, RecursionError) as wrong:
        raise ValueError(f"not a token count: {wrong}") from None


def count_body(count: int) -> bytes:
    """Anthropic's answer of so many tokens."""
    return b'{"input_tokens":%d}' % count
