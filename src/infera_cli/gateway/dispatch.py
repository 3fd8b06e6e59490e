"""Look, decide, reserve: one step without an `await` in between (design.md §2)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from infera_cli.errors import FleetError
from infera_cli.gateway.ports import Fleet, Lease
from infera_cli.routing.catalogue import Policy
from infera_cli.routing.pipeline import decide
from infera_cli.routing.types import Ask, Decision, Scorer


class Dispatcher:
    """Who serves a request, by one policy over one fleet."""

    def __init__(
        self, fleet: Fleet, policy: Policy, *, slack: int,
        clock: Callable[[], float] = time.monotonic, dice: random.Random | None = None,
        scorer: Scorer | None = None,
    ) -> None:  # fmt: skip
        self.fleet = fleet
        self.policy = policy
        self.slack = slack
        self.clock = clock
        self.scorer = scorer
        self.dice = dice or random.Random()  # noqa: S311 - spreads load, keeps no secret

    def route(self, ask: Ask, now: float) -> tuple[Decision, Lease]:
        """Decide and reserve. Raises ModelNotFound, NoRoutableWorker."""
        view = self.fleet.view(ask.model, now)
        decision = decide(ask, view, self.policy, now=now, dice=self.dice, slack=self.slack, scorer=self.scorer)
        return decision, self.fleet.reserve(decision, ask.session, now)

    def explain(self, ask: Ask) -> Decision:
        """The decision with its reasons; nothing is reserved or written down. Raises as `route`."""
        now = self.clock()
        view = self.fleet.view(ask.model, now)
        return decide(
            ask, view, self.policy, now=now, dice=self.dice, slack=self.slack, explain=True, scorer=self.scorer
        )

    def can_route(self, ask: Ask) -> bool:
        """Whether anybody would take the request now."""
        now = self.clock()
        try:
            pool = self.fleet.view(ask.model, now).pool
        except FleetError:
            return False
        return any(worker not in ask.tried for worker in pool.workers)
