"""What the relay adds to an answer on its way down (rulings 8): ids, the worker, where the time went."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infera_cli.gateway.relay import Relay

_IDS = b"x-request-id: %b\r\nx-infera-request-id: %b\r\nx-session-id: %b\r\n"
_ANSWER = _IDS + (
    b"x-infera-worker: %b\r\nserver-timing: queue;dur=%.3f, pick;dur=%.3f, upstream;dur=%.3f\r\n"
)


def of_answer(relay: Relay, worker: str, now: float) -> bytes:
    """Header lines of a relayed answer that begins `now`; Server-Timing shows milliseconds."""
    raw = relay.id.encode()
    queue, pick = relay.received - relay.started, relay.picked - relay.received
    return _ANSWER % (
        raw, raw, relay.named_session().encode(), worker.encode("ascii", "replace"),
        queue * 1e3, pick * 1e3, (now - relay.picked) * 1e3,
    )  # fmt: skip


def ids(name: str, session: str) -> bytes:
    """Header lines of an answer of our own."""
    raw = name.encode()
    return _IDS % (raw, raw, session.encode())
