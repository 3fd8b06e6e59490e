"""Server-sent events as far as a relay must know them: where an event ends, how a stream ended."""

from __future__ import annotations

import re

EVENT_STREAM = b"text/event-stream"
_BOUNDARIES = (b"\n\n", b"\r\n\r\n", b"\r\r")
_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"([a-z_]+)"')
_ERROR = re.compile(rb'(?:^|\n)(?:event:\s*error\s*[\r\n]|data:\s*\{\s*"error"\s*:\s*[{"])')
_DONE = re.compile(rb"(?:^|\n)data:\s*\[DONE\]\s*$")

KEEP_ALIVE = b": keep-alive\n\n"


def at_event_boundary(tail: bytes) -> bool:
    """Whether a stream whose last bytes are `tail` stands between two events (an empty stream does)."""
    return not tail or tail.endswith(_BOUNDARIES)


def openai_ending(tail: bytes) -> str:
    """How a chat or completions stream that ended with `tail` went.

    `done`: a finish reason or `[DONE]` is there; `aborted`: the engine itself says abort, cancelled or error, or
    sent an error in the stream; `cut`: it just stopped (rulings 11; R010, R109; engines.md §1.4).
    """
    if _ERROR.search(tail):
        return "aborted"
    reasons: list[bytes] = _FINISHED.findall(tail)
    if any(reason in {b"abort", b"cancelled", b"error"} for reason in reasons):
        return "aborted"
    return "done" if reasons or _DONE.search(tail) else "cut"


def anthropic_ending(tail: bytes) -> str:
    """The same for a Messages stream: `message_stop` closes it, an error event breaks it."""
    if _ERROR.search(tail):
        return "aborted"
    return "done" if b'"message_stop"' in tail else "cut"
