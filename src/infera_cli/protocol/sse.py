"""Server-sent events as far as a relay must know them: where an event ends, how a stream ended."""

from __future__ import annotations

import re

_BOUNDARIES = (b"\n\n", b"\r\n\r\n", b"\r\r")
_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"([a-z_]+)"')
_ERROR = re.compile(rb'(?:^|\n)(?:event:\s*error\s*[\r\n]|data:\s*\{\s*"error"\s*:\s*[{"])')
_BAD_REASONS = (b'"abort"', b'"cancelled"', b'"error"')

KEEP_ALIVE = b": keep-alive\n\n"


def at_event_boundary(tail: bytes) -> bool:
    """Whether a stream whose last bytes are `tail` stands between two events (an empty stream does)."""
    return not tail or tail.endswith(_BOUNDARIES)


def openai_ending(tail: bytes) -> str:
    """How a chat or completions stream that ended with `tail` went.

    `done`: a finish reason or `[DONE]` is there; `aborted`: the engine itself says abort, cancelled or error, or
    sent an error in the stream; `cut`: it just stopped (rulings 11; R010, R109; engines.md §1.4).
    """
    last = tail.rfind(b'"finish_reason":')
    if last >= 0 and tail.endswith(b"[DONE]\n\n") and tail.find(b'"error"', last) < 0:
        reason = _FINISHED.match(tail, last)
        if reason is not None and b'"%b"' % reason[1] not in _BAD_REASONS:
            return "done"  # nearly every stream
    if any(word in tail for word in _BAD_REASONS) and _went_bad(tail):
        return "aborted"
    return "done" if tail.rstrip().endswith(b"[DONE]") or _FINISHED.search(tail) else "cut"


def _went_bad(tail: bytes) -> bool:
    reasons: list[bytes] = _FINISHED.findall(tail)
    return _ERROR.search(tail) is not None or any(b'"%b"' % reason in _BAD_REASONS for reason in reasons)


def anthropic_ending(tail: bytes) -> str:
    """The same for a Messages stream: `message_stop` closes it, an error event breaks it."""
    if b'"error"' in tail and _ERROR.search(tail):
        return "aborted"
    return "done" if b'"message_stop"' in tail else "cut"
