"""Decides as every dispatcher does, and then holds what was decided: blocks in flight, promises, ranks."""

from __future__ import annotations

from infera_cli.errors import NoRoutableWorker
from infera_cli.gateway.dispatch import Dispatcher
from infera_cli.gateway.kv.figures import Picks
from infera_cli.gateway.ports import Lease
from infera_cli.routing.kv import Choice, Held, KvAware
from infera_cli.routing.pipeline import decide
from infera_cli.routing.prompt import Prompt
from infera_cli.routing.types import Ask, Decision, Pool, View

_RANK_DIGITS = 6
"""A longer number names no rank."""


class HeldLease:
    """A lease with a rank, and with what the prompt holds on its target."""

    __slots__ = ("_held", "_lease", "rank", "worker")

    def __init__(self, lease: Lease, held: Held | None, rank: int | None) -> None:
        self.worker = lease.worker
        self.rank = rank
        self._lease = lease
        self._held = held

    def settle(self, now: float) -> None:
        """See Lease."""
        self._lease.settle(now)
        if self._held is not None:
            self._held.release(now)


class KvDispatcher(Dispatcher):
    """A dispatcher for `kv-aware`, and for mode `direct` under any policy (`kv` None)."""

    kv: KvAware | None = None
    picks: Picks

    def over(self, kv: KvAware | None, picks: Picks) -> KvDispatcher:
        """Itself, with what it keeps."""
        self.kv, self.picks = kv, picks
        return self

    def route(self, ask: Ask, now: float) -> tuple[Decision, Lease]:
        """See Dispatcher. A worker that the caller insists on must exist and be routable (R184)."""
        view = narrowed(self.fleet.view(ask.model, now), ask)
        prompt = ask.work if isinstance(ask.work, Prompt) else None
        if prompt is not None:
            prompt.choice = None
        decision = decide(ask, view, self.policy, now=now, dice=self.dice, slack=self.slack, scorer=self.scorer)
        lease = self.fleet.reserve(decision, ask.session, now)
        if self.kv is None:
            rank = rank_in(ask.only)
            return decision, lease if rank is None else HeldLease(lease, None, rank)
        return decision, self._hold(self.kv, ask, prompt or Prompt(), decision, lease, now)

    def explain(self, ask: Ask) -> Decision:
        """See Dispatcher."""
        now = self.clock()
        view = narrowed(self.fleet.view(ask.model, now), ask)
        return decide(
            ask, view, self.policy, now=now, dice=self.dice, slack=self.slack, explain=True, scorer=self.scorer
        )

    def _hold(
        self, kv: KvAware, ask: Ask, prompt: Prompt, decision: Decision, lease: Lease, now: float
    ) -> Lease:
        choice = prompt.choice
        if not isinstance(choice, Choice) or choice.target.worker is not decision.worker:  # a pin was followed
            asked = Ask(ask.model, ask.session, (), prompt, ask.only)
            choice = kv.weigh(asked, Pool([decision.worker]), 0)
            if choice is None:
                return lease
        prompt.expected = expected_tokens(choice)
        self.picks.add(choice)
        return HeldLease(lease, kv.book.begin(choice, now), choice.target.rank)


def narrowed(view: View, ask: Ask) -> View:
    """The view of only the worker that the caller insists on. Raises NoRoutableWorker."""
    if ask.only is None:
        return view
    pool = view.pool
    at = pool.position.get(ask.only.partition("#dp")[0])
    rank = rank_in(ask.only)
    if at is None or ("#" in ask.only and (rank is None or rank >= max(1, pool.workers[at].spec.ranks))):
        raise NoRoutableWorker(
            "The worker named by X-Worker-Instance-Id is not here, or cannot take the request now; "
            "GET /v1/workers lists them.", code="no_such_worker",
        )  # fmt: skip
    one = Pool([pool.workers[at]], [pool.places[at]], pool.size)
    return View(one, view.outstanding, view.pins, view.turn)


def rank_in(only: str | None) -> int | None:
    """The rank of a target key such as `w#dp1`."""
    _, marked, rank = (only or "").partition("#dp")
    return int(rank) if marked and rank.isascii() and rank.isdigit() and len(rank) <= _RANK_DIGITS else None


def expected_tokens(choice: Choice) -> int:
    """What the engine should report as cached: whole pages, never the last token (engines §7)."""
    unit = choice.target.unit
    length = choice.length
    if not unit or not length:
        return -1
    pending, sure = choice.target.slot.pending, choice.hits
    while sure and choice.chain[sure - 1] in pending:  # what is promised comes after what is there
        sure -= 1
    page = choice.target.slot.block_size or unit
    return min(sure * unit, (length - 1) // page * page)
