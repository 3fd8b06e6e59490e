"""The values that routing speaks of. Nothing here does I/O or reads a clock (design.md §2, §4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Literal, NamedTuple, Protocol

from infera_cli.routing.spec import Role, WorkerSpec

__all__ = [
    "Affinity", "Ask", "Candidate", "Decision", "PinTable", "Pool", "Role", "Scorer", "View", "Worker", "WorkerSpec",
]  # fmt: skip


class Worker:
    """One engine as routing sees it: a name, and the place of its numbers in the ledger.

    Compared by identity: a worker that left and one that came later under the same name are two.
    """

    __slots__ = ("id", "number", "spec")

    def __init__(self, spec: WorkerSpec, number: int) -> None:
        self.id = spec.id
        self.number = number
        self.spec = spec

    def __repr__(self) -> str:
        return f"Worker({self.id!r}, {self.number})"


class Ask:
    """What routing needs to know of a request; never changed once made.

    `session` is the namespaced session key (rulings 10) or None; `tried` are workers that failed this
    request; `work` is what the policy's scorer reads of the request, made by whoever made the scorer. `only`
    is the worker id or target key (infera-wire §4.3) that the caller insists on, in mode `direct`.
    """

    __slots__ = ("model", "only", "session", "tried", "work")

    def __init__(
        self,
        model: str | None = None,
        session: str | None = None,
        tried: tuple[Worker, ...] = (),
        work: object = None,
        only: str | None = None,
    ) -> None:
        self.model = model
        self.session = session
        self.tried = tried
        self.work = work
        self.only = only

    def after(self, worker: Worker) -> Ask:
        """The same request again, once `worker` has failed it."""
        return Ask(self.model, self.session, (*self.tried, worker), self.work, self.only)

    def unpinned(self) -> Ask:
        """The same request of no session."""
        return Ask(self.model, None, self.tried, self.work, self.only)


def _reader(numbers: Sequence[int]) -> Callable[[Sequence[int]], Sequence[int]]:
    if not numbers:
        return lambda _column: ()
    first = numbers[0]
    if list(numbers) == list(range(first, first + len(numbers))):
        return itemgetter(slice(first, first + len(numbers)))  # a copy of memory, ten times as fast
    return itemgetter(*numbers)


class Pool:
    """The routable workers of one model, frozen; the fleet makes a new one whenever that set changes.

    `workers` are in table order. `places[i]` is the table place of `workers[i]` among all `size` workers of
    the model, unroutable ones included: rotation counts those too (replica-router §1.10). `loads(column)`
    reads a ledger column (indexed by `Worker.number`) for all workers in one step of C.
    """

    __slots__ = ("loads", "places", "position", "size", "workers")

    def __init__(
        self, workers: Sequence[Worker], places: Sequence[int] | None = None, size: int | None = None
    ) -> None:
        self.workers = tuple(workers)
        self.places = tuple(places) if places is not None else tuple(range(len(self.workers)))
        self.size = size if size is not None else len(self.workers)
        self.loads: Callable[[Sequence[int]], Sequence[int]] = _reader([w.number for w in self.workers])
        self.position = {worker.id: i for i, worker in enumerate(self.workers)}

    def without(self, tried: Sequence[Worker]) -> Pool:
        """The same pool less `tried`; places and size stay."""
        kept = [(w, p) for w, p in zip(self.workers, self.places, strict=True) if w not in tried]
        return Pool([w for w, _ in kept], [p for _, p in kept], self.size)


class PinTable(Protocol):
    """Where a session went last; looking changes nothing."""

    def find(self, session: str, now: float) -> str | None:
        """Id of the worker that `session` is pinned to, None when unknown or expired."""


class View:
    """What a decision looks at. `outstanding` is the ledger's column of open requests, by worker number;
    `turn` the rotation counter of this pool."""

    __slots__ = ("outstanding", "pins", "pool", "turn")

    def __init__(
        self,
        pool: Pool,
        outstanding: Sequence[int],
        pins: PinTable,
        turn: int = 0,
    ) -> None:
        self.pool = pool
        self.outstanding = outstanding
        self.pins = pins
        self.turn = turn


class Scorer(Protocol):
    """Weighs more than open requests: costs, known prefixes. Looking changes nothing; `now` is in seconds.

    `turn` is the rotation counter, below `pool.size`. A policy row with `scored` asks the scorer of the view's
    owner instead of its own `choose`.
    """

    def choose(
        self, ask: Ask, pool: Pool, outstanding: Sequence[int], turn: int, now: float
    ) -> tuple[int, str]:
        """(index into `pool.workers`, a word for the log, "" for none). Raises NoRoutableWorker when the scorer
        lets nobody of the pool have it."""

    def refuses(self, ask: Ask, worker: Worker, outstanding: Sequence[int], now: float) -> str | None:
        """Why `worker` must not have it, even where a session is pinned there; None when it may."""

    def terms(
        self, ask: Ask, pool: Pool, outstanding: Sequence[int], now: float
    ) -> Sequence[tuple[str | None, dict[str, float]]]:
        """For each of `pool.workers`: why the scorer would not have it (None: it would), and its score's parts."""


Affinity = Literal["off", "none", "hit", "overloaded", "gone"]
"""off: the policy keeps no pins, or the slack is 0; none: no session, or no live pin; hit: the pin was
followed; overloaded: the pin exceeded the slack; gone: the pinned worker is not routable."""


class Candidate(NamedTuple):
    """One worker in an explanation: `dropped` says which filter refused it, `terms` are the score's parts."""

    worker: str
    outstanding: int
    dropped: str | None = None
    terms: dict[str, float] = {}  # noqa: RUF012 - read, never written


class Decision:
    """Who serves, why, and what must be written down if it is acted on.

    `model` is the one asked for, so that the right rotation is turned.
    `turn` is the rotation counter after this decision (None: leave it); `pin` says whether the session, if
    any, is pinned to the worker. `why` is short enough for a log line, e.g. `session:hit` or `least-loaded`.
    """

    __slots__ = ("affinity", "candidates", "model", "pin", "turn", "why", "worker")

    def __init__(
        self,
        worker: Worker,
        why: str,
        affinity: Affinity = "off",
        turn: int | None = None,
        pin: bool = False,
        model: str | None = None,
        candidates: tuple[Candidate, ...] = (),
    ) -> None:
        self.worker = worker
        self.why = why
        self.affinity = affinity
        self.turn = turn
        self.pin = pin
        self.model = model
        self.candidates = candidates
