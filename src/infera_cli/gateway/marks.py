"""What the relay adds to an answer on its way down (rulings 8): ids, the worker, where the time went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from infera_cli.gateway.relay import Relay

_IDS: Final = b"x-request-id: %b\r\nx-infera-request-id: %b\r\nx-session-id: %b\r\n"
_ANSWER: Final = _IDS + b"x-infera-worker: %b\r\nserver-timing: queue;dur=%b, pick;dur=%b, upstream;dur=%b\r\n"
_THOUSANDTHS: Final = [b"%03d" % thousandths for thousandths in range(1000)]
_SHORT: Final = [b"0." + thousandths for thousandths in _THOUSANDTHS]


def of_answer(relay: Relay, worker: str, now: float) -> bytes:
    """Header lines of a relayed answer that begins `now`; Server-Timing shows milliseconds."""
    raw = relay.id.encode()
    queue, pick = relay.received - relay.started, relay.picked - relay.received
    return _ANSWER % (
        raw, raw, relay.named_session().encode(), worker.encode("ascii", "replace"),
        _milliseconds(queue), _milliseconds(pick), _milliseconds(now - relay.picked),
    )  # fmt: skip


def _milliseconds(seconds: float) -> bytes:
    """With three places; a look-up, since writing a float takes longer than choosing a worker."""
    microseconds = max(0, int(seconds * 1e6))
    if microseconds < 1000:
        return _SHORT[microseconds]
    return b"%d.%b" % (microseconds // 1000, _THOUSANDTHS[microseconds % 1000])


def ids(name: str, session: str) -> bytes:
    """Header lines of an answer of our own."""
    raw = name.encode()
    return _IDS % (raw, raw, session.encode())
