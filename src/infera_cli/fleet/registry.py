"""The live fleet: who is there, who may serve, and what is open where (design.md §2, §4).

One place changes the members' states; whoever must know hears a WorkerChanged event. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Protocol

from infera_cli.errors import NotFound
from infera_cli.events import Bus, WorkerChanged
from infera_cli.fleet.member import Member
from infera_cli.fleet.pools import Lanes
from infera_cli.fleet.roster import Roster
from infera_cli.routing.health import BreakerRules, Score, Sign
from infera_cli.routing.ledger import Lease, Ledger
from infera_cli.routing.types import Candidate, Decision, PinTable, View, Worker, WorkerSpec


class PinBook(PinTable, Protocol):
    """The pins, as the fleet keeps them up to date."""

    def __len__(self) -> int: ...

    def pin(self, session: str, worker_id: str, now: float, *, held: bool) -> None:
        """Pin `session` to the worker, `held` until a touch."""

    def touch(self, session: str, worker_id: str, now: float) -> None:
        """Refresh the pin if it still names the worker."""

    def drop_worker(self, worker_id: str) -> int:
        """Forget all pins to the worker."""

    def sweep(self, now: float) -> int:
        """Forget expired pins."""


class Registry:
    """All workers, in table order; fulfils the gateway's `Fleet`.

    `created` is the Unix time given to models that were declared and never described by their worker.
    Times are seconds of one monotonic clock.
    """

    def __init__(
        self, bus: Bus, *, pins: PinBook, ledger: Ledger | None = None, breaker: BreakerRules | None = None,
        created: int = 0,
    ) -> None:  # fmt: skip
        self._bus = bus
        self._pins = pins
        self._ledger = ledger if ledger is not None else Ledger()
        self._outstanding = self._ledger.outstanding
        self._rules = breaker if breaker is not None else BreakerRules()
        self._created = created
        self._roster = Roster(self._enter, self._leave, self._tell)
        self._of: dict[Worker, Member] = {}
        self._lanes = Lanes()
        self._uneasy = False      # some breaker is not closed
        self._recheck_at = inf    # when time alone changes a breaker
        self._hits = 0
        self._rejected = 0

    # ── the table ────────────────────────────────────────────────────────────────────────────────────
    def add(self, spec: WorkerSpec, *, ready: bool = True, owned: bool = False) -> Member | None:
        """A worker came; an unchanged spec keeps its member, a changed one of the same source replaces it.

        Static workers start `ready`, launched ones do not (replica-router §1.7). Returns None, and tells why
        by an event, where another source already has this base URL or name (rulings 21).
        """
        member = self._roster.add(spec, ready=ready, owned=owned)
        self._survey()
        return member

    def remove(self, worker_id: str, *, source: str | None = None) -> None:
        """A worker went: its pins are dropped, the others close up; its open leases settle as ever.

        With `source`, only what that source brought is removed, and nothing is no fault; without, an unknown
        name raises NotFound.
        """
        if source is None:
            self._roster.remove(self._named(worker_id))
        else:
            self._roster.withdraw(source, worker_id)
        self._survey()

    def replace_source(self, source: str, specs: Sequence[WorkerSpec], *, ready: bool = True) -> None:
        """`source` was read again, and names exactly `specs`.

        Unchanged workers keep everything, and their place whatever the order of `specs` (R076); a changed
        worker is removed and added.
        """
        self._roster.replace(source, specs, ready=ready)
        self._survey()

    def members(self) -> Sequence[Member]:
        """All workers, in table order."""
        return self._roster.members

    def member(self, worker_id: str) -> Member | None:
        """The worker of that name now."""
        return self._roster.by_id.get(worker_id)

    # ── a request's way ──────────────────────────────────────────────────────────────────────────────
    def view(self, model: str | None, now: float) -> View:
        """What may serve `model` (None: any) now. Raises ModelNotFound, NoRoutableWorker."""
        if now >= self._recheck_at:
            self._look(now)
        lane = self._lanes.of(model)
        pool = lane.pool or lane.refill(now)
        if pool is None:
            raise self._lanes.refusal(model, self._roster.members)
        return View(pool, self._outstanding, self._pins, lane.turn)

    def reserve(self, decision: Decision, session: str | None, now: float) -> Lease:
        """Act on a decision: count the request, pin the session, turn the rotation, claim a trial."""
        worker = decision.worker
        if decision.turn is not None:
            self._lanes.of(decision.model).turn = decision.turn
        if decision.affinity == "hit":
            self._hits += 1
        if self._uneasy:
            self._claim_trial(worker, now)
        if not decision.pin or session is None:
            return self._ledger.reserve(worker)
        self._pins.pin(session, worker.id, now, held=True)
        return self._ledger.reserve(worker, session, self._pins)

    def score(self, worker: Worker, score: Score, now: float) -> None:
        """Tell breaker and readiness how an attempt went; once per request and worker."""
        member = self._of.get(worker)
        if member is None:
            return
        if score is Score.UNREACHABLE:
            self._sign(member, "unreachable", "a request could not reach it")
        elif score is Score.SUCCESS:
            self._heard_from(member, now)
            if member.circuit.calm:
                return
        before = member.circuit.stand
        member.circuit.record(score, now)
        self._breaker_moved(member, before)

    def alive(self, worker: Worker, now: float) -> None:
        """Bytes arrived from this worker: counts as health (rulings 12)."""
        member = self._of.get(worker)
        if member is not None:
            self._heard_from(member, now)

    def reject(self) -> None:
        """Count a request that found nothing routable."""
        self._rejected += 1

    # ── what is learned about workers ────────────────────────────────────────────────────────────────
    def probed(self, member: Member, ok: bool, now: float, detail: str = "") -> None:
        """A probe of this very member ended; one that left meanwhile changes nothing (B25)."""
        if self._of.get(member.worker) is member and not (ok and now < member.held_until):
            self._sign(member, "probe_ok" if ok else "probe_failed", detail)
        self.tick(now)

    def hold(self, worker: Worker, until: float, detail: str) -> None:
        """Out of rotation, and no probe brings it back before `until` (replica-router §2.12)."""
        member = self._of.get(worker)
        if member is not None:
            member.held_until = until
            self._sign(member, "unreachable", detail)

    def stall(self, member: Member, stalled: bool, detail: str = "") -> None:
        """Its open requests stand still, or move again."""
        if self._of.get(member.worker) is member and member.stalled is not stalled:
            member.stalled = stalled
            self._changed(member, "stalled" if stalled else "moving", detail)

    def models_learned(self, member: Member, cards: Sequence[dict[str, Any]]) -> None:
        """What this very member lists under /v1/models; declared names stay binding (rulings 9)."""
        if self._of.get(member.worker) is member and member.learn(cards):
            self._survey()
            self._tell(member.id, "models", ", ".join(member.models))

    def drain(self, worker_id: str) -> Member:
        """Give it no new work, until restored (R112); its pins are dropped now (A16). Raises NotFound."""
        member = self._named(worker_id)
        if not member.draining:
            member.draining = True
            self._pins.drop_worker(member.id)
            self._changed(member, "draining")
        return member

    def restore(self, worker_id: str) -> Member:
        """Undo drain. Raises NotFound."""
        member = self._named(worker_id)
        if member.draining:
            member.draining = False
            self._changed(member, "restored")
        return member

    def sweep(self, now: float) -> int:
        """Forget expired pins, look at the breakers; returns how many pins went."""
        self.tick(now)
        return self._pins.sweep(now)

    def tick(self, now: float) -> None:
        """Let time pass for the breakers, so that a quiet router shows their true state too."""
        if now >= self._recheck_at:
            self._look(now)

    # ── what people ask ──────────────────────────────────────────────────────────────────────────────
    def explain(self, model: str | None, now: float) -> Sequence[Candidate]:
        """Every worker, with the reason why it is not in `view`, if any."""
        lane = self._lanes.of(model)
        pool = lane.refill(now)
        used = set(pool.workers) if pool is not None else set()
        told = []
        for member in self._roster.members:
            dropped = None if member.worker in used else _why_not(member, model, now)
            told.append(Candidate(member.id, member.outstanding, dropped))
        return told

    def model_cards(self) -> Sequence[dict[str, Any]]:
        """What all available workers list under /v1/models; the first card of an id is the one."""
        union: dict[str, dict[str, Any]] = {}
        for member in self._roster.members:
            if member.mixed and member.available:
                for card in member.listed(self._created):
                    union.setdefault(card["id"], card)
        return list(union.values())

    def counters(self) -> dict[str, int]:
        """`sessions`, `routed` (by workers now in the table), `affinity_hits`, `rejected`."""
        return {
            "sessions": len(self._pins),
            "routed": sum(member.routed for member in self._roster.members),
            "affinity_hits": self._hits,
            "rejected": self._rejected,
        }

    # ── within ───────────────────────────────────────────────────────────────────────────────────────
    def _named(self, worker_id: str) -> Member:
        member = self._roster.by_id.get(worker_id)
        if member is None:
            raise NotFound(f"There is no worker {worker_id!r}.")
        return member

    def _enter(self, spec: WorkerSpec, *, ready: bool, owned: bool) -> Member:
        member = Member(spec, self._ledger, self._rules, ready=ready, owned=owned)
        self._of[member.worker] = member
        return member

    def _leave(self, member: Member) -> None:
        del self._of[member.worker]
        self._pins.drop_worker(member.id)
        self._ledger.close(member.worker.number)

    def _survey(self) -> None:
        self._lanes.survey(self._roster.members)
        self._plan()

    def _tell(self, worker_id: str, what: str, detail: str = "") -> None:
        self._bus.emit(WorkerChanged(worker_id, what, detail))

    def _changed(self, member: Member, what: str, detail: str = "") -> None:
        self._lanes.invalidate()
        self._tell(member.id, what, detail)

    def _sign(self, member: Member, sign: Sign, detail: str = "") -> None:
        if member.readiness.move(sign):
            self._changed(member, "ready" if member.ready else "not_ready", detail)

    def _heard_from(self, member: Member, now: float) -> None:
        member.last_alive = now
        if member.readiness.state == "struck":
            member.readiness.move("alive")

    def _claim_trial(self, worker: Worker, now: float) -> None:
        member = self._of.get(worker)
        if member is not None and member.breaker == "half_open" and member.circuit.allows(now):
            before = member.circuit.stand
            member.circuit.claim(now)
            self._breaker_moved(member, before)

    def _look(self, now: float) -> None:
        for member in self._roster.members:
            before = member.circuit.stand
            member.circuit.look(now)
            self._breaker_moved(member, before)

    def _breaker_moved(self, member: Member, before: tuple[str, float]) -> None:
        after = member.circuit.stand
        if after == before:
            return
        self._plan()
        self._lanes.invalidate()
        if after[0] != before[0]:
            self._tell(member.id, "breaker", after[0])

    def _plan(self) -> None:
        breakers = [member.circuit for member in self._roster.members]
        self._uneasy = any(breaker.state != "closed" for breaker in breakers)
        self._recheck_at = min((breaker.changes_at for breaker in breakers), default=inf)


def _why_not(member: Member, model: str | None, now: float) -> str | None:
    if not member.mixed:
        return f"a {member.spec.role} worker"
    if not member.may_serve(model):
        return "serves other models"
    return member.why_not(now)
