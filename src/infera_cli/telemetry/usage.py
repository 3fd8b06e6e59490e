"""Token counts, read from the last bytes of an answer (engines.md §1: engines put `usage` near the end)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from infera_cli.telemetry.usage_shape import UNREADABLE, Numbers, decode, decode_all

_KEY: Final = b'"usage"'
_ATTEMPTS = 4
_ABSURD: Final = 10**12
_PROMPT = (b'"prompt_tokens"', b'"input_tokens"')
_COMPLETION = (b'"completion_tokens"', b'"output_tokens"')
_CACHED = (b'"cached_tokens"', b'"cache_read_input_tokens"')
_number_at = re.compile(rb"\s*:\s*([0-9]{1,12})(?![0-9])").match

Usage = tuple[int, int, int]
"""Prompt, completion and cached prompt tokens; what the answer does not mention is 0."""


def read_usage(tail: bytes) -> Usage | None:
    """The last usage object in `tail` that holds numbers; None when there is none.

    Text that a model wrote cannot pass for one: quotes inside JSON strings are escaped.
    """
    at = tail.rfind(_KEY)
    if at < 0:
        return None
    return _decoded(tail, at) or _searched(tail, at)


# ── the usual case: usage is a top-level member, and the document ends with its line ─────────────────
def read_all(tails: Sequence[bytes]) -> list[Usage]:
    """What `read_usage` finds in each of `tails`, where it finds something, in any order.

    One call of the decoder for all of them costs a fraction of a call for each.
    """
    documents = []
    for tail in tails:
        at = tail.rfind(_KEY)
        if at >= 0:
            documents.append(_document(tail, at))
    try:
        found = [_sound(rest.usage) for rest in decode_all(b"[" + b",".join(documents) + b"]")]
    except UNREADABLE:
        found = [None]
    if None in found:  # one of them needs a closer look: look at each
        return [usage for usage in map(read_usage, tails) if usage is not None]
    return [usage for usage in found if usage is not None]


def _document(tail: bytes, at: int) -> bytes:
    end = tail.find(b"\n", at)
    return b"{" + (tail[at:] if end < 0 else tail[at:end])


def _decoded(tail: bytes, at: int) -> Usage | None:
    try:
        return _sound(decode(_document(tail, at)).usage)
    except UNREADABLE:
        return None


def _sound(numbers: Numbers | None) -> Usage | None:
    if numbers is None:
        return None
    prompt = numbers.prompt_tokens or numbers.input_tokens or 0
    completion = numbers.completion_tokens or numbers.output_tokens or 0
    details = numbers.prompt_tokens_details
    cached = (details.cached_tokens if details is not None else numbers.cache_read_input_tokens) or 0
    if 0 <= prompt < _ABSURD and 0 <= completion < _ABSURD and 0 <= cached < _ABSURD:
        return prompt, completion, cached
    return None


# ── anything else ────────────────────────────────────────────────────────────────────────────────────
def _searched(tail: bytes, at: int) -> Usage | None:
    for _ in range(_ATTEMPTS):
        prompt, completion = _either(tail, at, _PROMPT), _either(tail, at, _COMPLETION)
        if prompt >= 0 or completion >= 0:
            return max(prompt, 0), max(completion, 0), max(_either(tail, at, _CACHED), 0)
        at = tail.rfind(_KEY, 0, at)
        if at < 0:
            break
    return None


def _either(tail: bytes, at: int, keys: tuple[bytes, bytes]) -> int:
    """The number of the first key that has one after `at`; −1 when none has."""
    for key in keys:
        found = tail.find(key, at)
        if found >= 0:
            number = _number_at(tail, found + len(key))
            if number is not None:
                return int(number[1])
    return -1
