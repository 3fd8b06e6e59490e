"""What may come between the admission of a request and its first attempt, declared where it is used.

The relay knows nothing of queues, batches or costs. A server whose policy wants more than open requests gives its
gate a `Plan`; that reads the request, and may give it a `Trip`, a companion that decides when it is sent and
hears how it went. Without a plan a request pays one comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from infera_cli.errors import InferaError
from infera_cli.events import Outcome
from infera_cli.routing.health import Score
from infera_cli.routing.types import Ask, Worker

if TYPE_CHECKING:
    from infera_cli.gateway.relay import Relay
    from infera_cli.gateway.upstream.receiver import Receiver


class Plan(Protocol):
    """Prepares requests."""

    def begin(self, relay: Relay) -> None:
        """The body is complete: set `session` and `ask` of `relay`, its `trip` where it needs one, and call
        `relay.attempt`, now or later. Raises InferaError, which refuses the request; later it is the plan's to call
        `relay.refuse`."""


def go_on(relay: Relay, plan: Plan | None, model: str | None, session: str, pin: str) -> None:
    """Let `plan` prepare `relay`; where there is none, send it under the names that were read of it (see `identify`).

    Raises InferaError, which refuses the request.
    """
    if plan is not None:
        plan.begin(relay)
        return
    relay.session = session
    relay.ask = Ask(model, pin)
    relay.attempt(relay.received)


class Trip(Protocol):
    """One request's companion."""

    @property
    def stays(self) -> bool:
        """It must not be sent to another worker."""

    @property
    def limit(self) -> float | None:
        """Seconds that `overdue` knows of; None: the limits of everybody hold."""

    def route(self, now: float) -> None:
        """Find a worker for `relay.ask`: set `relay.lease` and call `relay.placed`, now or later. Raises as
        Dispatcher.route, and TooManyRequests where it cannot wait."""

    def receiver(self, relay: Relay) -> Receiver:
        """Who takes the worker's answer: `relay`, or somebody who passes it on."""

    def overdue(self, now: float) -> str:
        """Which limit has passed, "" when none has."""

    def scored(self, worker: Worker, score: Score, now: float) -> None:
        """How an attempt went."""

    def gave_up(self, error: InferaError, outcome: Outcome) -> bool:
        """Nobody is left to try; True when the client was answered with something better than `error`."""

    def ended(self, outcome: Outcome) -> None:
        """The request is over."""
