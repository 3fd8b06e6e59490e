"""Does an engine's answer say that its device ran out of memory (replica-router §2.12; C1, C5)."""

from __future__ import annotations

import re

STATUSES = frozenset({424, 500, 503, 507})
"""Only these answers, and error events of streams, are looked into. 422 and 429 are overload or bad input."""

READ_LIMIT = 64 << 10
"""Bytes of an answer that are looked at."""

_SIGNS = re.compile(
    rb"out of memory|outofmemoryerror|cublas_status_alloc_failed|hip error: out of memory", re.IGNORECASE
)
_ERROR_EVENT = re.compile(rb'(?:^|\n)(?:event: ?error|data: ?\{\s*"(?:error|object": ?"error)")')


def is_out_of_memory(status: int, body: bytes) -> bool:
    """Whether that answer reports it; a full KV cache is none, engines preempt and queue."""
    return status in STATUSES and _SIGNS.search(body, 0, READ_LIMIT) is not None


def event_is_out_of_memory(events: bytes) -> bool:
    """Whether server-sent events hold an error that reports it."""
    found = _ERROR_EVENT.search(events)
    return found is not None and _SIGNS.search(events, found.start(), found.start() + READ_LIMIT) is not None
