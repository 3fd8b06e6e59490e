"""What the gateway needs from the fleet, declared next to where it is used (style.md 15).

`fleet.registry` fulfils these; `wiring` joins the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from infera_cli.routing.health import Score
from infera_cli.routing.types import Candidate, Decision, View, Worker, WorkerSpec

__all__ = ["ENGINE_TROUBLE", "Fleet", "Lease", "Member", "Score", "is_fault"]

ENGINE_TROUBLE = frozenset({429, 500, 502, 503, 504})
"""Answers that are the engine's trouble, not the request's. 501 and 505 would be the same everywhere."""


def is_fault(status: int) -> bool:
    """Whether an answer of that status counts against the worker."""
    return status >= 500 and status not in {501, 505}


class Lease(Protocol):
    """One open request on one worker; settled exactly once."""

    worker: Worker

    @property
    def rank(self) -> int | None:
        """The one behind the worker's address that shall serve; None: the worker's own choice."""

    def settle(self, now: float) -> None:
        """The attempt is over: outstanding falls by one, and the session's pin is refreshed.

        Raises RuntimeError on a second call.
        """


class Member(Protocol):
    """One worker of the fleet, live. All attributes are for reading."""

    @property
    def worker(self) -> Worker:
        """Its name and place in the ledger."""
    @property
    def spec(self) -> WorkerSpec:
        """As it was configured."""
    @property
    def ready(self) -> bool:
        """As far as probes and connections tell."""
    @property
    def draining(self) -> bool:
        """Gets no new work."""
    @property
    def stalled(self) -> bool:
        """Gets no new work until its open requests move."""
    @property
    def owned(self) -> bool:
        """Launched by this server."""
    @property
    def routable(self) -> bool:
        """Ready, not draining, breaker not in the way."""
    @property
    def outstanding(self) -> int:
        """Requests open through this server."""
    @property
    def routed(self) -> int:
        """Requests given to it since it came."""
    @property
    def failures(self) -> int:
        """Failed probes in a row."""
    @property
    def breaker(self) -> str:
        """closed, half_open or open."""
    @property
    def breaker_trips(self) -> int:
        """How often its breaker opened."""
    @property
    def models(self) -> tuple[str, ...]:
        """Declared, else learned; empty while unknown."""


class Fleet(Protocol):
    """The live view of all workers."""

    def view(self, model: str | None, now: float) -> View:
        """What may serve `model` (None: any) now.

        Raises ModelNotFound (every worker's models are known and none serves it), NoRoutableWorker.
        """

    def explain(self, model: str | None, now: float) -> Sequence[Candidate]:
        """Every worker, with the reason why it is not in `view`, if any."""

    def reserve(self, decision: Decision, session: str | None, now: float) -> Lease:
        """Act on a decision: count the request, pin the session, turn the rotation."""

    def score(self, worker: Worker, score: Score, now: float) -> None:
        """Tell the breaker and readiness how an attempt went; once per request and worker."""

    def alive(self, worker: Worker, now: float) -> None:
        """Bytes arrived from this worker: counts as health (rulings 12)."""

    def reject(self) -> None:
        """Count a request that found nothing routable."""

    def members(self) -> Sequence[Member]:
        """All workers, in table order."""

    def member(self, worker_id: str) -> Member | None:
        """The worker of that name now."""

    def drain(self, worker_id: str) -> Member:
        """Give it no new work; raises NotFound. Idempotent."""

    def restore(self, worker_id: str) -> Member:
        """Undo drain; raises NotFound. Idempotent."""

    def model_cards(self) -> Sequence[dict[str, Any]]:
        """The union of what all routable workers list under /v1/models, from memory, one entry per id."""

    def counters(self) -> dict[str, int]:
        """`sessions` (pins held), `routed`, `affinity_hits`, `rejected` (replica-router §1.12)."""
