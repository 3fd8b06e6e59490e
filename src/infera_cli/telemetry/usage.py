"""Token counts, read from the last bytes of an answer (engines.md §1: every engine puts `usage` last)."""

from __future__ import annotations

import re
from typing import NamedTuple


class Usage(NamedTuple):
    """What an answer says it took; a member that it does not mention is 0."""

    prompt: int
    completion: int
    cached: int


_KEY = b'"usage"'
_WINDOW = 1024
_ATTEMPTS = 4
_NUMBERS = re.compile(
    rb'"(prompt_tokens|input_tokens|completion_tokens|output_tokens|cached_tokens|cache_read_input_tokens)"'
    rb"\s*:\s*([0-9]{1,12})(?![0-9])"
)


def read_usage(tail: bytes) -> Usage | None:
    """The last usage object in `tail` that holds numbers; None when there is none.

    Text that a model wrote cannot pass for one: quotes inside JSON strings are escaped.
    """
    end = len(tail)
    for _ in range(_ATTEMPTS):
        at = tail.rfind(_KEY, 0, end)
        if at < 0:
            return None
        found = dict(reversed(_NUMBERS.findall(tail, at, min(at + _WINDOW, len(tail)))))
        if found:
            return _usage({name: int(number) for name, number in found.items()})
        end = at
    return None


def _usage(found: dict[bytes, int]) -> Usage:
    return Usage(
        found.get(b"prompt_tokens", found.get(b"input_tokens", 0)),
        found.get(b"completion_tokens", found.get(b"output_tokens", 0)),
        found.get(b"cached_tokens", found.get(b"cache_read_input_tokens", 0)),
    )
