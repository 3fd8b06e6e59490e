"""Small worlds for routing tests: workers on a ledger, and a policy that looks at them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from infera_cli.routing.catalogue import POLICIES
from infera_cli.routing.ledger import Lease, Ledger
from infera_cli.routing.pipeline import decide
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import Ask, Decision, Pool, View, Worker, WorkerSpec


class World:
    """`loads[i]` requests are open on worker `w<i>`; those in `out` are in the table but not routable."""

    def __init__(
        self, loads: Sequence[int], *, policy: str = "session", slack: float = 8,
        out: Sequence[int] = (), ttl: float = 3600.0,
    ) -> None:  # fmt: skip
        self.ledger = Ledger()
        specs = [WorkerSpec(id=f"w{i}", host="127.0.0.1", port=8001 + i) for i in range(len(loads))]
        self.workers = [Worker(spec, self.ledger.open()) for spec in specs]
        for worker, load in zip(self.workers, loads, strict=True):
            for _ in range(load):
                self.ledger.reserve(worker)
        places = [i for i in range(len(loads)) if i not in out]
        self.pool = Pool([self.workers[i] for i in places], places, len(loads))
        self.pins = Pins(ttl)
        self.policy = POLICIES[policy]
        self.slack = slack
        self.turn = 0
        self.now = 0.0
        self.dice = random.Random(1)

    @property
    def view(self) -> View:
        return View(self.pool, self.ledger.outstanding, self.pins, self.turn)

    def decide(
        self, session: str | None = None, *, tried: Sequence[int] = (), explain: bool = False
    ) -> Decision:
        ask = Ask(session=session, tried=tuple(self.workers[i] for i in tried))
        return decide(
            ask, self.view, self.policy, now=self.now, dice=self.dice, slack=self.slack, explain=explain
        )

    def send(self, session: str | None = None, *, tried: Sequence[int] = ()) -> tuple[Decision, Lease]:
        """Decide and act on it, as the fleet would."""
        decision = self.decide(session, tried=tried)
        if decision.turn is not None:
            self.turn = decision.turn
        if decision.pin and session is not None:
            self.pins.pin(session, decision.worker.id, self.now, held=True)
        return decision, self.ledger.reserve(decision.worker, session, self.pins)

    def visit(self, session: str | None = None, *, tried: Sequence[int] = ()) -> str:
        """One request, over before the next one; who served it."""
        decision, lease = self.send(session, tried=tried)
        lease.settle(self.now)
        return decision.worker.id
