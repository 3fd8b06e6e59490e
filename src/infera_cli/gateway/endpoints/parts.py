"""What the control plane is built from: values, and Protocols of what others provide (style.md 15)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Literal, Protocol

from infera_cli.gateway.access import Access, RawHeaders
from infera_cli.gateway.endpoints.nodes import NodeParts
from infera_cli.gateway.ports import Fleet
from infera_cli.gateway.translation.aliases import Aliases
from infera_cli.protocol.worker_record import WorkerRecord
from infera_cli.routing.types import Candidate, WorkerSpec

SourceKind = Literal["files", "discovery"]
"""files: replica files, `--worker`, `--sim`, `--config`; discovery: workers register (rulings 3)."""


class Exposition(Protocol):
    """The metrics of this process as text."""

    def render(self, accept: str) -> tuple[bytes, str]:
        """The body and its content type, in the format that the Accept header prefers."""


class Journal(Protocol):
    """The last few thousand requests."""

    def query(
        self, *, slow: float | None = None, worker: str | None = None, session: str | None = None,
        status: str | None = None, limit: int = 100,
    ) -> Sequence[Mapping[str, Any]]:
        """Newest first; `slow` is a least total time in seconds."""  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A decision that nobody acted on. `worker` is None when nothing would serve; `error` says why."""

    model: str | None
    session: str | None
    policy: str
    worker: str | None
    why: str
    affinity: str
    candidates: Sequence[Candidate]
    error: str | None = None


class Trace(Protocol):
    """Records what is served, without what is said."""

    def record(self, seconds: float, stopped: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Lines of JSON, until time is up or `stopped`."""


class Explain(Protocol):
    """Decides for a request as it would have come in, and sends nothing."""

    async def __call__(self, path: str, headers: RawHeaders, body: bytes) -> Explanation:
        """`headers` have lower-case names; `body` is as a client would send it."""


class Reply(Protocol):
    """A worker's answer."""

    status: int
    body: bytes


class Post(Protocol):
    """POSTs to workers, with each worker's own key."""

    async def __call__(self, spec: WorkerSpec, path: str, *, timeout: float, body: bytes) -> Reply:  # noqa: ASYNC109
        """Raises OSError, TimeoutError."""


class Prewarm(Protocol):
    """Hands hints to the cache daemon."""

    async def __call__(self, keys: Sequence[bytes], model: str, compat_key: str, deadline_ms: int) -> None:
        """Raises NoRoutableWorker when the daemon cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Replicas the router launched, may launch at most, and the free slots (replica-router §1.12)."""

    owned: int = 0
    ceiling: int = 0
    free_slots: tuple[str, ...] = ()


class Supervisor(Protocol):
    """Who launches and stops replicas on declared machines."""

    def owns(self, name: str) -> bool:
        """Whether a replica of that name was launched here and is not gone."""

    async def launch(self, slot: str | None = None) -> tuple[str, str]:
        """Name and URL of a replica whose command was started. Raises Conflict, NotFound, FleetError."""

    async def stop(self, name: str, *, drain: bool = True) -> str | None:
        """Drain, stop, wait; what is left of it in words, None when nothing is."""

    def slots(self) -> Sequence[Mapping[str, Any]]:
        """Every declared slot and what is on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """A place that workers come from. `stale`: it could not be read, and what it said before still holds.

    Why it could not be read is for the log: everybody may look at `/health`.
    """

    name: str
    stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlParts:
    """Everything behind the control plane; callables are asked anew for each request.

    `records` are what discovered workers say about themselves, by name; it changes under its readers.
    """

    fleet: Fleet
    access: Access
    metrics: Exposition
    journal: Journal
    explain: Explain
    version: str
    policy: str
    config: str = ""
    source_kind: SourceKind = "files"
    is_draining: Callable[[], bool] = field(default=lambda: False)
    capacity: Callable[[], Capacity] = field(default=Capacity)
    supervisor: Supervisor | None = None
    sources: Callable[[], Sequence[SourceState]] = field(default=lambda: ())
    records: Mapping[str, WorkerRecord] = field(default_factory=dict)
    nodes: NodeParts | None = None
    broken_sessions: Callable[[], Sequence[Mapping[str, Any]]] | None = None
    cached_blocks: Callable[[str, int | None], int] | None = None
    clock: Callable[[], float] = monotonic
    aliases: Aliases = field(default_factory=Aliases)
    profile: Post | None = None
    prewarm: Prewarm | None = None
    trace: Trace | None = None
    body_limit: int = 64 << 20
