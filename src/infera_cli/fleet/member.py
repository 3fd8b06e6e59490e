"""One worker of the fleet, live: what it is, and whether it may serve (replica-router §1.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infera_cli.routing.health import Breaker, BreakerRules, Readiness
from infera_cli.routing.ledger import Ledger
from infera_cli.routing.types import Worker, WorkerSpec


class Member:
    """One worker as the registry keeps it; everybody else only reads.

    Compared by identity: what a slow probe found belongs to the member that was probed, never to one that
    came later under its name (B25).
    """

    __slots__ = (
        "_ledger", "cards", "circuit", "draining", "held_until", "last_alive", "learned", "owned", "readiness",
        "stalled", "worker",
    )  # fmt: skip

    def __init__(
        self, spec: WorkerSpec, ledger: Ledger, rules: BreakerRules, *, ready: bool, owned: bool
    ) -> None:
        self._ledger = ledger
        self.worker = Worker(spec, ledger.open())
        self.owned = owned
        self.draining = False
        self.stalled = False
        """Open requests, and nothing moves: gets no new work until something does."""
        self.held_until = -1.0
        """Good probes before this moment do not bring it back."""
        self.readiness = Readiness(ready=ready)
        self.circuit = Breaker(rules)
        self.learned: tuple[str, ...] = ()
        self.cards: tuple[dict[str, Any], ...] = ()
        self.last_alive = -1.0
        """When bytes of an answer last arrived; −1: never."""

    def __repr__(self) -> str:
        return f"Member({self.id!r})"

    @property
    def id(self) -> str:
        """Its name, unique in the fleet."""
        return self.worker.id

    @property
    def spec(self) -> WorkerSpec:
        """As configured or registered."""
        return self.worker.spec

    @property
    def ready(self) -> bool:
        """As far as probes and connections tell."""
        return self.readiness.ready

    @property
    def available(self) -> bool:
        """Ready, moving and not draining; an open breaker is another matter."""
        return self.readiness.ready and not self.draining and not self.stalled

    @property
    def routable(self) -> bool:
        """Available, and its breaker was not in the way when last looked at."""
        breaker = self.circuit
        return self.available and breaker.state != "open" and not breaker.trying

    @property
    def outstanding(self) -> int:
        """Requests open on it through this router."""
        return self._ledger.outstanding[self.worker.number]

    @property
    def routed(self) -> int:
        """Requests sent to it since it came."""
        return self._ledger.routed[self.worker.number]

    @property
    def failures(self) -> int:
        """Failed probes in a row."""
        return self.readiness.failures

    @property
    def breaker(self) -> str:
        """closed, half_open or open."""
        return self.circuit.state

    @property
    def breaker_trips(self) -> int:
        """How often the breaker opened."""
        return self.circuit.trips

    @property
    def models(self) -> tuple[str, ...]:
        """Declared, else learned; empty while unknown (rulings 9). Who registered may list more than the record."""
        declared = self.spec.models
        if declared and not self.spec.binding:
            return tuple(dict.fromkeys((*declared, *self.learned)))
        return declared or self.learned

    @property
    def mixed(self) -> bool:
        """Whether whole requests may go to it: prefill and decode workers serve halves (rulings 22)."""
        return self.spec.role == "mixed"

    def may_serve(self, model: str | None) -> bool:
        """Whether `model` (None: any) is its business: it lists the model, or nobody knows what it lists."""
        models = self.models
        return self.mixed and (model is None or not models or model in models)

    def learn(self, cards: Sequence[dict[str, Any]]) -> bool:
        """Keep what the worker lists, cards without an id aside; True when `models` changed by it."""
        before = self.models
        first: dict[str, dict[str, Any]] = {}
        for card in cards:
            name = card.get("id")
            if isinstance(name, str) and name:
                first.setdefault(name, card)
        self.learned = tuple(first)
        self.cards = tuple(first.values())
        return self.models != before

    def listed(self, created: int) -> list[dict[str, Any]]:
        """Its entries of GET /v1/models: the worker's own words, or made from a declared name without any."""
        own = {card["id"]: card for card in self.cards}
        return [
            own.get(name) or {"id": name, "object": "model", "created": created, "owned_by": "infera"}
            for name in self.models
        ]

    def why_not(self, now: float) -> str | None:
        """Why it takes no new work at `now`, in a few words; None when it does."""
        if self.draining:
            return "draining"
        if not self.ready:
            return "not ready"
        if self.stalled:
            return "stalled"
        if self.circuit.allows(now):
            return None
        return "breaker half open, its trial is under way" if self.circuit.trying else "breaker open"
