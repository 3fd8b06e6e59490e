"""From a request and a view of the fleet to a decision: filter, pin, choose (design.md §4).

Pure: time and dice are arguments, pins are looked at and never changed. Acting on a decision is the fleet's.
"""

from __future__ import annotations

from infera_cli.errors import NoRoutableWorker
from infera_cli.routing.catalogue import Policy
from infera_cli.routing.pickers import Dice
from infera_cli.routing.types import Affinity, Ask, Candidate, Decision, Pool, Scorer, View

DIRECT = "direct"
"""Why a worker serves that the caller named."""


def decide(
    ask: Ask, view: View, policy: Policy, *, now: float, dice: Dice, slack: float, explain: bool = False,
    scorer: Scorer | None = None,
) -> Decision:  # fmt: skip
    """Who serves `ask`, and what to write down for it.

    `slack` is how many more open requests than the least loaded a pinned worker may have and still keep its
    session; 0 switches affinity off: no pin is consulted and none is made (replica-router §1.10; B32).
    With `explain` the decision carries every candidate. A `scorer` chooses in place of the policy's own rule,
    once no pin did. Raises NoRoutableWorker when all were tried already, or the scorer lets nobody have it.
    """
    pool = view.pool.without(ask.tried) if ask.tried else view.pool
    if not pool.workers:
        raise NoRoutableWorker("Every worker that could serve this request was tried and failed.")
    turn = view.turn % pool.size
    sticky = policy.pins and slack > 0
    affinity, at = _follow_pin(ask.session, pool, view, now, slack) if sticky else _AFFINITY_OFF
    after: int | None = None
    word: str = affinity if policy.pins else ""
    if at >= 0 and scorer is not None and scorer.refuses(ask, pool.workers[at], view.outstanding, now):
        affinity, at = "overloaded", -1
    if at < 0:
        if scorer is None:
            at = policy.choose(pool, view.outstanding, turn, dice)
        else:
            at, word = scorer.choose(ask, pool, view.outstanding, turn, now)
        after = (pool.places[at] + 1) % pool.size
    return Decision(
        worker=pool.workers[at],
        why=DIRECT if ask.only is not None else f"{policy.name}:{word}" if word else policy.name,
        affinity=affinity,
        turn=after,
        pin=sticky and ask.session is not None,
        model=ask.model,
        candidates=_candidates(ask, view, turn, now, scorer) if explain else (),
    )


_AFFINITY_OFF: tuple[Affinity, int] = ("off", -1)


def _follow_pin(
    session: str | None, pool: Pool, view: View, now: float, slack: float
) -> tuple[Affinity, int]:
    """What the pin says, and the index it leads to, −1 where it does not lead."""
    pinned = view.pins.find(session, now) if session is not None else None
    if pinned is None:
        return "none", -1
    at = pool.position.get(pinned)
    if at is None:
        return "gone", -1
    load = view.outstanding[pool.workers[at].number]
    # Most pins are within the slack of an idle worker; only the others need to know who is least loaded.
    if load <= slack or load <= min(pool.loads(view.outstanding)) + slack:
        return "hit", at
    return "overloaded", -1


def _candidates(
    ask: Ask, view: View, turn: int, now: float, scorer: Scorer | None
) -> tuple[Candidate, ...]:
    pool = view.pool
    pinned = view.pins.find(ask.session, now) if ask.session is not None else None
    nothing: tuple[str | None, dict[str, float]] = (None, {})
    scores = scorer.terms(ask, pool, view.outstanding, now) if scorer else [nothing] * len(pool.workers)
    told = []
    for worker, place, (refused, parts) in zip(pool.workers, pool.places, scores, strict=True):
        terms = {"rotation": float((place - turn) % pool.size), **parts}
        if worker.id == pinned:
            terms["pinned"] = 1.0
        dropped = "already tried" if worker in ask.tried else refused
        told.append(Candidate(worker.id, view.outstanding[worker.number], dropped, terms))
    return tuple(told)
