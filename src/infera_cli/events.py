"""What happened, as plain values; who cares subscribes (design.md §2; style.md 14).

The gateway and the fleet emit, telemetry listens. An event never steers anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

Outcome = Literal["ok", "4xx", "5xx", "broken", "timeout", "client_gone", "rejected"]
"""How a relayed request ended: a 2xx/3xx answer complete; a worker's 4xx or 5xx; a broken or failed stream;
a time-out of ours; the client left first; refused here before any worker was asked."""

Reason = Literal[
    "bad_request", "unauthorized", "forbidden", "unknown_model", "body_timeout", "body_too_large", "headers_too_large",
    "full", "quota", "nothing_routable", "other",
]
"""Why a request was refused here, whatever status its client was told: `full` is the router, its queue or every worker,
`quota` the caller's key."""


class RequestDone:
    """One relayed request is over; never changed once made.

    Times are seconds: `started` is Unix time, the others are durations.
    A duration is measured from the moment the request head was complete; None where it was never reached.
    `tail` holds the last bytes of the answer (at most 4 KiB), from which token counts are read off the hot path.
    """

    __slots__ = (
        "bytes_in", "bytes_out", "chunks", "error", "expected_cached", "first_byte", "id", "model",
        "outcome", "path", "peer", "picked", "reason", "received", "retries", "sent", "session", "started", "status",
        "streamed", "tail", "total", "why", "worker",
    )  # fmt: skip

    def __init__(
        self, *, id: str, path: str, model: str | None, session: str | None, worker: str | None,  # noqa: A002
        why: str, status: int, outcome: Outcome, retries: int, streamed: bool, started: float,
        received: float | None, picked: float | None, sent: float | None, first_byte: float | None, total: float,
        chunks: int, bytes_in: int, bytes_out: int, tail: bytes, peer: str, error: str | None = None,
        expected_cached: int | None = None, reason: Reason | None = None,
    ) -> None:  # fmt: skip
        self.id = id
        self.path = path
        self.model = model
        self.session = session
        self.worker = worker
        self.why = why
        self.status = status
        self.outcome = outcome
        self.retries = retries
        self.streamed = streamed
        self.started = started
        self.received = received  # body complete, admitted
        self.picked = picked  # worker chosen (the last attempt)
        self.sent = sent  # handed to the worker's connection (the last attempt)
        self.first_byte = first_byte  # first body byte from the worker
        self.total = total
        self.chunks = chunks  # reads relayed; 1 for a unary answer
        self.bytes_in = bytes_in
        self.bytes_out = bytes_out
        self.tail = tail
        self.peer = peer
        self.error = error
        self.reason: Reason | None = reason  # of a refusal
        self.expected_cached = expected_cached  # prompt tokens that the router thought to be in the worker's cache


class WorkerFault(NamedTuple):
    """An attempt failed through the worker's own fault."""

    worker: str
    reason: str
    request: str
    detail: str = ""


class WorkerChanged(NamedTuple):
    """A worker came, went, or changed what it may serve: `what` is one of
    added, removed, record (what it registered changed, its address did not), ready, not_ready, draining, restored,
    stalled, moving, models, breaker, ignored (another source has its
    name or base URL; `detail` is a sentence for a warning)."""

    worker: str
    what: str
    detail: str = ""


class Reloaded(NamedTuple):
    """A source file was read again; `error` is the sentence when it was refused."""

    source: str
    error: str | None = None


Event = RequestDone | WorkerFault | WorkerChanged | Reloaded
Listener = Callable[[Event], None]


class Bus:
    """Hands every event to those who asked for its kind, in order of subscription; a listener must not block."""

    def __init__(self) -> None:
        self._by_kind: dict[type, list[Listener]] = {kind: [] for kind in get_args(Event)}

    def subscribe(self, listener: Listener, *kinds: type) -> None:
        """Call `listener` with each event of these kinds (all kinds, where none is named) from now on."""
        for kind in kinds or self._by_kind:
            self._by_kind[kind].append(listener)

    def emit(self, event: Event) -> None:
        """Tell everyone who asked."""
        for listener in self._by_kind[type(event)]:
            listener(event)
