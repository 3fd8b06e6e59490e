"""A finished relay as an event."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from infera_cli.errors import (
    AllFull,
    BodyTooLarge,
    Forbidden,
    HeadersTooLarge,
    InferaError,
    ModelNotFound,
    NoRoutableWorker,
    NotFound,
    QuotaUsedUp,
    RequestError,
    RequestTimeout,
    TooManyRequests,
    Unauthorized,
)
from infera_cli.events import Outcome, Reason, RequestDone
from infera_cli.routing.pipeline import DIRECT
from infera_cli.routing.prompt import Prompt

if TYPE_CHECKING:
    from infera_cli.gateway.relay import Relay


_REASONS: dict[type[InferaError], Reason] = {
    QuotaUsedUp: "quota",
    TooManyRequests: "full",
    AllFull: "full",
    NoRoutableWorker: "nothing_routable",
    Unauthorized: "unauthorized",
    Forbidden: "forbidden",
    ModelNotFound: "unknown_model",
    NotFound: "other",
    RequestTimeout: "body_timeout",
    BodyTooLarge: "body_too_large",
    HeadersTooLarge: "headers_too_large",
    RequestError: "bad_request",
    InferaError: "other",
}
"""By class; a class without a row has that of its nearest ancestor."""


def reason_of(error: InferaError) -> Reason:
    """Why a request was refused, the same in every API."""
    return next(_REASONS[kind] for kind in type(error).__mro__ if kind in _REASONS)


def record_of(
    relay: Relay, worker: str | None, outcome: Outcome, error: str | None, now: float, reason: Reason | None = None
) -> RequestDone:
    """What happened to `relay`, which ends `now`."""
    began, answer = relay.started, relay.answer
    return RequestDone(
        id=relay.id,
        path=_path_of(relay.target),
        model=relay.ask.model,
        session=relay.session,
        worker=worker,
        why=relay.why or (DIRECT if relay.ask.only is not None else ""),
        status=answer.status,
        outcome=outcome,
        retries=relay.retries,
        streamed=answer.streamed,
        started=relay.gate.epoch + began,
        received=relay.received - began if relay.received else None,
        picked=relay.picked - began if relay.picked else None,
        sent=relay.sent - began if relay.sent else None,
        first_byte=relay.first_byte - began if relay.first_byte else None,
        total=now - began,
        chunks=answer.chunks,
        bytes_in=relay.bytes_in,
        bytes_out=answer.bytes_out,
        tail=answer.tail(),
        peer=relay.client.peer,
        error=error,
        reason=reason,
        expected_cached=_expected(relay.ask.work) if relay.ask.work is not None else None,
    )


def unread(
    request: str, session: str, target: bytes, peer: str, status: int, error: InferaError, now: float
) -> RequestDone:
    """A request that was refused before it became a relay, at Unix time `now`: its head or its framing was no good."""
    return RequestDone(
        id=request, path=_path_of(target), model=None, session=session, worker=None, why="", status=status,
        outcome="rejected", retries=0, streamed=False, started=now, received=None, picked=None, sent=None,
        first_byte=None, total=0.0, chunks=0, bytes_in=0, bytes_out=0, tail=b"", peer=peer, error=error.message,
        reason=reason_of(error),
    )  # fmt: skip


def _expected(work: object) -> int | None:
    return work.expected if isinstance(work, Prompt) and work.expected >= 0 else None


@lru_cache(maxsize=1024)
def _path_of(target: bytes) -> str:
    return target.partition(b"?")[0].decode("latin-1")
