"""What telemetry reads of the running parts at each scrape; fleet and gateway fulfil it unknowingly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class _Named(Protocol):
    @property
    def id(self) -> str: ...


class _Spec(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def role(self) -> str: ...


class WatchedWorker(Protocol):
    """A worker, live."""

    @property
    def worker(self) -> _Named: ...
    @property
    def spec(self) -> _Spec: ...
    @property
    def ready(self) -> bool: ...
    @property
    def draining(self) -> bool: ...
    @property
    def outstanding(self) -> int: ...
    @property
    def routed(self) -> int: ...
    @property
    def breaker(self) -> str: ...
    @property
    def breaker_trips(self) -> int: ...
    @property
    def models(self) -> tuple[str, ...]: ...


class WatchedFleet(Protocol):
    """All workers, and the counters of the registry (`sessions`, `affinity_hits` are read)."""

    def members(self) -> Sequence[WatchedWorker]: ...
    def counters(self) -> Mapping[str, int]: ...


class WatchedPool(Protocol):
    """The connections to one worker."""

    @property
    def spec(self) -> _Spec: ...
    @property
    def open_count(self) -> int: ...
    @property
    def idle_count(self) -> int: ...
    @property
    def created(self) -> int: ...
    @property
    def taken_again(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The live parts. `inflight` counts requests inside; `pools` lists one pool a worker."""

    fleet: WatchedFleet
    inflight: Callable[[], int]
    pools: Callable[[], Iterable[WatchedPool]]
