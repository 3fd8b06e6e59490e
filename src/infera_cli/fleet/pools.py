"""Who may serve which model: one lane a model, its pool made anew only when something changed.

A lane is all mixed workers of one model, unroutable ones included: they keep their place in the rotation
(replica-router §1.10). Models no worker is known to serve share one lane, so that names made up by clients
take no memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from infera_cli.errors import ModelNotFound, NoRoutableWorker
from infera_cli.fleet.member import Member
from infera_cli.routing.types import Pool

RETRY_AFTER = 5.0
"""Seconds after which a client may ask again when nothing is routable (replica-router §2.10)."""

_ECHO_LIMIT = 200  # characters of the client's input that an error repeats (R034)


class Lane:
    """The workers of one model, in table order, and its rotation counter."""

    __slots__ = ("members", "pool", "turn")

    def __init__(self, members: Sequence[Member], turn: int) -> None:
        self.members = tuple(members)
        self.turn = turn % len(members) if members else 0
        self.pool: Pool | None = None

    def refill(self, now: float) -> Pool | None:
        """Make the pool of those that may be used now; None when nobody is available.

        Where every breaker is in the way, none is heeded (infera-wire §4.9).
        """
        available = [place for place, member in enumerate(self.members) if member.available]
        places = [p for p in available if self.members[p].circuit.allows(now)] or available
        if not places:
            return None
        self.pool = Pool([self.members[p].worker for p in places], places, len(self.members))
        return self.pool


class Lanes:
    """All lanes of one fleet. `by_model[None]` is everybody; `others` serves any name not in `by_model`."""

    __slots__ = ("by_model", "others")

    def __init__(self) -> None:
        self.by_model: dict[str | None, Lane] = {None: Lane((), 0)}
        self.others = Lane((), 0)

    def survey(self, members: Sequence[Member]) -> None:
        """Workers came, went, or told their models: lay the lanes anew; rotations go on, modulo the count."""
        mixed = [member for member in members if member.mixed]
        strangers = [member for member in mixed if not member.models]
        names = dict.fromkeys(name for member in mixed for name in member.models)
        before = self.by_model
        self.by_model = {None: Lane(mixed, before[None].turn)}
        for name in names:
            turn = before[name].turn if name in before else 0
            self.by_model[name] = Lane([member for member in mixed if member.may_serve(name)], turn)
        self.others = Lane(strangers, self.others.turn)

    def of(self, model: str | None) -> Lane:
        """The lane of `model`."""
        return self.by_model.get(model, self.others)

    def invalidate(self) -> None:
        """Somebody's state changed: every pool is made anew when next asked for."""
        for lane in self.by_model.values():
            lane.pool = None
        self.others.pool = None

    def refusal(self, model: str | None, members: Sequence[Member]) -> ModelNotFound | NoRoutableWorker:
        """The error that says why nobody can serve `model` now."""
        candidates = self.of(model).members
        if candidates:
            return NoRoutableWorker(_unavailable(model, candidates), retry_after=RETRY_AFTER)
        if not members:
            return NoRoutableWorker("There is no worker in the fleet.", retry_after=RETRY_AFTER)
        served = sorted(name for name in self.by_model if name is not None)
        if not served:
            sentence = "Prefill and decode workers do not serve whole requests, and there is no other worker."
            return NoRoutableWorker(sentence, retry_after=RETRY_AFTER)
        asked = model if model is None or len(model) <= _ECHO_LIMIT else model[: _ECHO_LIMIT - 1] + "…"
        return ModelNotFound(
            f"The model {asked!r} is not served here; served are: {', '.join(served)}.",
            param="model",
            code="model_not_found",
        )


def _unavailable(model: str | None, members: Sequence[Member]) -> str:
    reasons = Counter(
        "draining" if member.draining else "stalled" if member.stalled and member.ready else "not ready"
        for member in members
    )
    whose = f" of model {model!r}" if model is not None else ""
    if len(members) == 1:
        return f"The only worker{whose} is {next(iter(reasons))}."
    if len(reasons) == 1:
        return f"All {len(members)} workers{whose} are {next(iter(reasons))}."
    told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return f"None of the {len(members)} workers{whose} can take a request: {told}."
