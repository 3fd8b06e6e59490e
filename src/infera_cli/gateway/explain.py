"""Why a request would go where it goes: the relay's own decision, with reasons and without consequences."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from infera_cli.errors import FleetError, ModelNotFound
from infera_cli.gateway.access import RawHeaders
from infera_cli.gateway.dispatch import Dispatcher
from infera_cli.gateway.endpoints.parts import Explanation
from infera_cli.gateway.identity import identify
from infera_cli.gateway.translation.aliases import Aliases, with_model
from infera_cli.protocol.headers import RequestHead
from infera_cli.routing.sessions import MINTED
from infera_cli.routing.types import Ask, Candidate, Decision

WorkOf = Callable[[str, bytes], Awaitable[object]]
"""What a scorer wants to know of a body that is sent to a route."""


async def no_work(_path: str, _body: bytes) -> object:
    """Nothing, as a WorkOf."""
    return None


class Explainer:
    """Explains with the dispatcher that the relay uses; `work` reads what its scorer wants to know, `aliases` are
    other names of models, `insisted_on` finds the worker that a caller may name."""

    def __init__(
        self, dispatcher: Dispatcher, policy: str, work: WorkOf = no_work, *,
        aliases: Aliases | None = None, insisted_on: Callable[[RequestHead], str | None] | None = None,
    ) -> None:  # fmt: skip
        self._dispatcher = dispatcher
        self._insisted_on = insisted_on
        self._work = work
        self._policy = policy
        self._aliases = aliases or Aliases()

    async def __call__(self, path: str, headers: RawHeaders, body: bytes) -> Explanation:
        """Decide for the request; when nothing would serve it, say so and why each worker would not."""
        head = RequestHead(list(headers))
        model, _session, pin = identify(head, body, bytes)
        served = self._aliases.resolve(model) if model is not None else None
        if served is not None:
            model, body = served, bytes(with_model(body, served))
        session, work = None if pin.startswith(MINTED) else pin, await self._work(path, body)
        ask = Ask(model=model, session=session, work=work)
        decision: Decision | None = None
        error: str | None = None
        try:
            only = self._insisted_on(head) if self._insisted_on is not None else None
            ask = Ask(model=model, session=session, work=work, only=only)
            decision = self._dispatcher.explain(ask)
        except (FleetError, ModelNotFound) as refusal:
            error = refusal.message
        return Explanation(
            model=model,
            session=ask.session,
            policy=self._policy,
            worker=decision.worker.id if decision else None,
            why=decision.why if decision else "",
            affinity=decision.affinity if decision else "none",
            candidates=self._candidates(ask, decision),
            error=error,
        )

    def _candidates(self, ask: Ask, decision: Decision | None) -> list[Candidate]:
        """Every worker of the fleet; those that were weighed come with their scores."""
        weighed = {candidate.worker: candidate for candidate in decision.candidates} if decision else {}
        fleet = self._dispatcher.fleet
        return [weighed.get(c.worker, c) for c in fleet.explain(ask.model, self._dispatcher.clock())]
