"""What the relay adds to an answer on its way down (rulings 8): ids, the worker, where the time went."""

from __future__ import annotations

_IDS = b"x-request-id: %b\r\nx-infera-request-id: %b\r\nx-session-id: %b\r\n"
_ANSWER = _IDS + (
    b"x-infera-worker: %b\r\nserver-timing: queue;dur=%.3f, pick;dur=%.3f, upstream;dur=%.3f\r\n"
)


def of_answer(name: str, session: str, worker: str, queue: float, pick: float, upstream: float) -> bytes:
    """Header lines of a relayed answer. Durations are seconds; Server-Timing shows milliseconds."""
    raw = name.encode()
    shown = worker.encode("ascii", "replace")
    return _ANSWER % (raw, raw, session.encode(), shown, queue * 1e3, pick * 1e3, upstream * 1e3)


def ids(name: str, session: str) -> bytes:
    """Header lines of an answer of our own."""
    raw = name.encode()
    return _IDS % (raw, raw, session.encode())
