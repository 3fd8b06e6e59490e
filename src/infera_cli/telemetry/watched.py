"""What telemetry reads of the running parts at each scrape; fleet and gateway fulfil it unknowingly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from infera_cli.telemetry.cache import WatchedCache


class _Named(Protocol):
    @property
    def id(self) -> str:
        """Its name."""


class _Spec(Protocol):
    @property
    def id(self) -> str:
        """Its name."""
    @property
    def role(self) -> str:
        """mixed, prefill or decode."""


class WatchedWorker(Protocol):
    """A worker, live."""

    @property
    def worker(self) -> _Named:
        """Its name."""
    @property
    def spec(self) -> _Spec:
        """As configured."""
    @property
    def ready(self) -> bool:
        """Probes succeed."""
    @property
    def draining(self) -> bool:
        """It gets no new work."""
    @property
    def outstanding(self) -> int:
        """Open requests."""
    @property
    def routed(self) -> int:
        """Times it was chosen."""
    @property
    def breaker(self) -> str:
        """closed, half_open or open."""
    @property
    def breaker_trips(self) -> int:
        """Times its breaker went open."""
    @property
    def models(self) -> tuple[str, ...]:
        """What it lists; empty while unknown."""


class WatchedFleet(Protocol):
    """All workers, and the counters of the registry (`sessions`, `affinity_hits` are read)."""

    def members(self) -> Sequence[WatchedWorker]:
        """In table order."""
    def counters(self) -> Mapping[str, int]:
        """By name."""


class WatchedPool(Protocol):
    """The connections to one worker."""

    @property
    def spec(self) -> _Spec:
        """As configured."""
    @property
    def open_count(self) -> int:
        """Connections that stand."""
    @property
    def idle_count(self) -> int:
        """Connections that wait for work."""
    @property
    def created(self) -> int:
        """Connections opened so far."""
    @property
    def taken_again(self) -> int:
        """Requests sent on a kept-alive connection."""


class WatchedSource(Protocol):
    """A place where workers enrol themselves."""

    @property
    def name(self) -> str:
        """Of the source."""
    @property
    def stale(self) -> bool:
        """The last view serves, for want of news."""
    @property
    def refused(self) -> int:
        """Records that could not be used."""
    @property
    def reconnects(self) -> int:
        """Times that following it was begun anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The live parts. `inflight` counts requests inside, `direct` those of them that named their worker; `pools` lists
    one pool a worker; `sources` are those that workers enrol themselves in; `cache` is what a cache-aware policy
    keeps."""

    fleet: WatchedFleet
    inflight: Callable[[], int]
    pools: Callable[[], Iterable[WatchedPool]]
    direct: Callable[[], int] = lambda: 0
    sources: Sequence[WatchedSource] = ()
    cache: WatchedCache | None = None
