"""A finished relay as an event."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from infera_cli.events import Outcome, RequestDone
from infera_cli.routing.prompt import Prompt

if TYPE_CHECKING:
    from infera_cli.gateway.relay import Relay


def record_of(relay: Relay, worker: str | None, outcome: Outcome, error: str | None, now: float) -> RequestDone:
    """What happened to `relay`, which ends `now`."""
    began, answer = relay.started, relay.answer
    return RequestDone(
        relay.id, _path_of(relay.target), relay.ask.model, relay.session, worker, relay.why, answer.status, outcome,
        relay.retries, answer.streamed, relay.gate.epoch + began,
        relay.received - began if relay.received else None,
        relay.picked - began if relay.picked else None,
        relay.sent - began if relay.sent else None,
        relay.first_byte - began if relay.first_byte else None,
        now - began, answer.chunks, relay.bytes_in, answer.bytes_out, answer.tail(), relay.client.peer, error,
        _expected(relay.ask.work) if relay.ask.work is not None else None,
    )  # fmt: skip


def _expected(work: object) -> int | None:
    return work.expected if isinstance(work, Prompt) and work.expected >= 0 else None


@lru_cache(maxsize=1024)
def _path_of(target: bytes) -> str:
    return target.partition(b"?")[0].decode("latin-1")
