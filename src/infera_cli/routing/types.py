"""The values that routing speaks of. Nothing here does I/O or reads a clock (design.md §2, §4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal, Protocol

import msgspec

Role = Literal["mixed", "prefill", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One engine as it was configured or registered; what is live about it lives elsewhere.

    `models` are declared names (empty: learn them from the engine). `api_key` is sent to this worker instead
    of the client's credentials and is never shown. `address` is what the router dials where it differs from
    `host`. `kv_events_endpoint` is the ZMQ address of the first rank's KV events, None where it must be asked
    for, `kv_replay_endpoint` where missed ones can be had again; `kv_block_size` is the engine's page in tokens. `dp_size` ranks answer behind this address, or it is
    itself rank `dp_rank` of its engine (infera-wire §1.2, §4.3).
    """

    id: str
    host: str
    port: int
    scheme: Literal["http", "https"] = "http"
    path_prefix: str = ""
    address: str | None = None
    models: tuple[str, ...] = ()
    role: Role = "mixed"
    engine: str = ""
    source: str = ""
    api_key: str | None = None
    ca_file: str | None = None
    kv_events_endpoint: str | None = None
    kv_replay_endpoint: str | None = None
    kv_block_size: int | None = None
    dp_rank: int | None = None
    dp_size: int | None = None

    @property
    def ranks(self) -> int:
        """How many ranks a request may be addressed to behind this one address; 0: none to choose (§4.3)."""
        return self.dp_size if self.dp_size is not None and self.dp_size > 1 and self.dp_rank is None else 0

    @property
    def authority(self) -> str:
        """`host:port`, IPv6 hosts in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """Base URL without a trailing slash."""
        return f"{self.scheme}://{self.authority}{self.path_prefix}"

    def __repr__(self) -> str:
        return f"WorkerSpec({self.id!r}, {self.url!r})"


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


class Ask(msgspec.Struct, frozen=True, gc=False):
    """What routing needs to know of a request.

    `session` is the namespaced session key (rulings 10) or None; `tried` are workers that failed this
    request; `work` is what the policy's scorer reads of the request, made by whoever made the scorer. `only`
    is the worker id or target key (infera-wire §4.3) that the caller insists on, in mode `direct`.
    """

    model: str | None = None
    session: str | None = None
    tried: tuple[Worker, ...] = ()
    work: object = None
    only: str | None = None

    def after(self, worker: Worker) -> Ask:
        """The same request again, once `worker` has failed it."""
        return Ask(self.model, self.session, (*self.tried, worker), self.work, self.only)


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


class View(msgspec.Struct, frozen=True, gc=False):
    """What a decision looks at. `outstanding` is the ledger's column of open requests, by worker number;
    `turn` the rotation counter of this pool."""

    pool: Pool
    outstanding: Sequence[int]
    pins: PinTable
    turn: int = 0


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


class Candidate(msgspec.Struct, frozen=True):
    """One worker in an explanation: `dropped` says which filter refused it, `terms` are the score's parts."""

    worker: str
    outstanding: int
    dropped: str | None = None
    terms: dict[str, float] = {}


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Who serves, why, and what must be written down if it is acted on.

    `model` is the one asked for, so that the right rotation is turned.
    `turn` is the rotation counter after this decision (None: leave it); `pin` says whether the session, if
    any, is pinned to the worker. `why` is short enough for a log line, e.g. `session:hit` or `least-loaded`.
    """

    worker: Worker
    why: str
    affinity: Affinity = "off"
    turn: int | None = None
    pin: bool = False
    model: str | None = None
    candidates: tuple[Candidate, ...] = ()
