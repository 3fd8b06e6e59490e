"""Which of our limits a request has passed (rulings 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infera_cli.errors import InferaError, NoRoutableWorker, RequestTimeout, UpstreamTimeout

if TYPE_CHECKING:
    from infera_cli.gateway.options import Timeouts
    from infera_cli.gateway.relay import Relay

SHUTDOWN = "shutdown"
"""The limit of all that is still open when the server ends."""
ROUND_TRIP = 0.4
"""Seconds. A reused connection that ends within them after we wrote was closed for being idle; later, its worker was at
work on the request."""


def overdue(relay: Relay, now: float) -> str:
    """The name of the limit, "" when none has passed."""
    if relay.trip is not None and relay.trip.limit:
        return relay.trip.overdue(now)
    times = relay.gate.options.timeouts
    if times.total and now - relay.started > times.total:
        return "total"
    if times.first_byte and relay.sent and not relay.first_byte and now - relay.picked > times.first_byte:
        return "first-byte"
    if times.idle and (relay.first_byte or not relay.complete) and now - relay.moved > times.idle:
        return "idle"
    return ""


def longest_arrival(times: Timeouts) -> float:
    """How long the body of a request for the control plane may take: those are small, so some limit always holds."""
    return times.total or times.idle or times.head


def too_late(what: str, complete: bool) -> InferaError:
    """What the client is told: that limit has passed, `complete` or not its own request."""
    if what == SHUTDOWN:
        return NoRoutableWorker("The router is shutting down.")
    if not complete:
        return RequestTimeout("The request body did not arrive in time.")
    return UpstreamTimeout(f"The worker did not finish in time ({what} time-out).")
