"""Where the workers of this server come from: one small class a kind of source, freely mixed (design.md §1).

Making a source reads and checks what it names, so that a bad file stops the program before the socket is bound;
`open` then puts its workers into the fleet (replica-router §1.13).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from infera_cli.config.serve import worker_api_key
from infera_cli.config.settings import ServeSettings
from infera_cli.events import Bus
from infera_cli.fleet.probe import Fetch
from infera_cli.fleet.registry import Registry
from infera_cli.fleet.sources import static
from infera_cli.fleet.sources.replicas import SOURCE, ReplicaSource
from infera_cli.gateway.gate import Gate
from infera_cli.launch.sim import SimEngines
from infera_cli.routing.types import WorkerSpec
from infera_cli.wiring.config_source import FromConfig
from infera_cli.wiring.farewell import Farewell
from infera_cli.wiring.launching import Launching
from infera_cli.wiring.ourselves import ourselves

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Into:
    """What a source is opened into. `say` speaks to the person who started the server, `fetch` to workers; `url` is
    where we answer."""

    registry: Registry
    bus: Bus
    say: Say
    gate: Gate
    fetch: Fetch
    url: str = ""


class Source(Protocol):
    """A place that workers come from."""

    async def open(self, into: Into, stack: contextlib.AsyncExitStack) -> None:
        """Put the workers into the fleet and keep them true; what must end with the server goes onto `stack`."""

    def reload(self, into: Into) -> bool:
        """SIGHUP: read anew what was read; False where there is nothing to read (R151)."""


class FromFile:
    """`--replicas FILE`."""

    def __init__(self, settings: ServeSettings, path: str) -> None:
        key = worker_api_key(settings)
        self._settings, self._ourselves = settings, ourselves(settings)
        self._file = ReplicaSource(path, router_port=settings.port, api_key=key, check=self._check)
        self._loaded = self._file.load()
        self.file = self._loaded.file
        self.launching = Launching(settings, self._loaded.file, api_key=key)
        self._farewell: Farewell

    async def open(self, into: Into, stack: contextlib.AsyncExitStack) -> None:
        """See Source."""
        self._ourselves = ourselves(self._settings, into.url)
        self._farewell = Farewell(into.gate, into.fetch)
        stack.push_async_callback(self._farewell.aclose)
        into.registry.replace_source(SOURCE, self._loaded.specs)
        if self.launching.declared:
            stack.push_async_callback(self.launching.close, into.say)
            await self.launching.start(into.registry, into.fetch, address=into.url)

    def reload(self, into: Into) -> bool:
        """See Source; a bad file is refused and the old one stays.

        Streams of a replica that left end where they are, and so does what waits on one that still answers.
        """
        with self._farewell.to_leavers(into.registry, SOURCE):
            loaded = self._file.reload(into.registry, into.bus)
        if loaded is not None:
            self.launching.reload(loaded.file)
        return True

    def _check(self, spec: WorkerSpec, where: str) -> None:
        self._ourselves.check(spec, where)


class FromFlags:
    """`--worker URL`."""

    def __init__(self, settings: ServeSettings) -> None:
        self._specs = static.workers(settings.worker, api_key=worker_api_key(settings))
        ourselves(settings).check_all(self._specs, "--worker")

    async def open(self, into: Into, stack: contextlib.AsyncExitStack) -> None:
        """See Source."""
        for spec in self._specs:
            into.registry.add(spec)

    def reload(self, into: Into) -> bool:
        """See Source."""
        return False


_EVENTS = (
    '{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://127.0.0.1:0", '
    '"replay_endpoint": "tcp://127.0.0.1:0"}'
)


class FromSimulation:
    """`--sim N`: engines of our own, which end with the server."""

    def __init__(self, count: int, *, kv_events: bool = False) -> None:
        self._count = count
        self._options = {"kv-events-config": _EVENTS} if kv_events else {}

    async def open(self, into: Into, stack: contextlib.AsyncExitStack) -> None:
        """See Source."""
        engines = await stack.enter_async_context(SimEngines())
        for one in await engines.start(self._count, options=self._options):
            into.registry.add(WorkerSpec(id=one.name, host=one.host, port=one.port, source="sim", engine="sim"))

    def reload(self, into: Into) -> bool:
        """See Source."""
        return False


def launching_of(sources: Iterable[Source]) -> Launching | None:
    """Who launches replicas for this server; None where no machines are declared."""
    made = (source.launching for source in sources if isinstance(source, FromFile))
    return next((launching for launching in made if launching.declared), None)


def sources_of(settings: ServeSettings) -> list[Source]:
    """Every source that the settings name, files first. Raises ConfigError for what cannot be used."""
    found: list[Source] = []
    if settings.replicas is not None:
        found.append(FromFile(settings, settings.replicas))
    if settings.config is not None:
        found.append(FromConfig(settings, settings.config))
    if settings.worker:
        found.append(FromFlags(settings))
    if settings.sim:
        found.append(FromSimulation(settings.sim, kv_events=settings.router_policy == "kv-aware"))
    return found
