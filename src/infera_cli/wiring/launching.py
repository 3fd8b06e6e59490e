"""Replicas launched by this server: the supervisor joined with registry, prober, machines and state file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from infera_cli.config.settings import ServeSettings
from infera_cli.errors import ConfigError
from infera_cli.fleet.probe import Fetch
from infera_cli.fleet.registry import Registry
from infera_cli.gateway.endpoints.parts import Capacity
from infera_cli.launch.plan import Launch
from infera_cli.launch.processes import Processes
from infera_cli.launch.replacement import Rules
from infera_cli.launch.seat import Pool
from infera_cli.launch.state import Record, StateFile
from infera_cli.launch.supervisor import Supervisor
from infera_cli.protocol.replica_file import ReplicaFile, ceiling, initial_replicas
from infera_cli.routing.types import WorkerSpec
from infera_cli.wiring.machines import RealNet, RealTime, launches_of, machines_of, orphan_row, slot_row

SOURCE = "hosts"
log = logging.getLogger("infera.launch")


class RegistryTable:
    """The registry as the supervisor's table: its replicas are of the source `hosts`."""

    def __init__(self, registry: Registry, *, api_key: str | None = None) -> None:
        self._registry = registry
        self._api_key = api_key

    def enter(self, record: Record, launch: Launch, *, ready: bool) -> bool:
        """See Table."""
        spec = WorkerSpec(
            id=record.slot, host=record.address, port=record.port, source=SOURCE,
            engine=launch.engine.name, api_key=self._api_key,
        )  # fmt: skip
        return self._registry.add(spec, ready=ready, owned=True) is not None

    def leave(self, name: str) -> None:
        """See Table."""
        self._registry.remove(name, source=SOURCE)

    def drain(self, name: str) -> None:
        """See Table."""
        if self._registry.member(name) is not None:
            self._registry.drain(name)

    def outstanding(self, name: str) -> int:
        """See Table."""
        member = self._registry.member(name)
        return 0 if member is None else member.outstanding

    def is_ready(self, name: str) -> bool:
        """See Table."""
        member = self._registry.member(name)
        return member is not None and member.ready

    def is_draining(self, name: str) -> bool:
        """See Table."""
        member = self._registry.member(name)
        return member is not None and member.draining


def rules_of(settings: ServeSettings) -> Rules:
    """The supervisor's share of the settings."""
    return Rules(
        launch_timeout=settings.launch_timeout, drain_timeout=settings.drain_timeout,
        health_interval=settings.health_interval, replace_after=settings.replace_after,
        replace_dead=not settings.no_replace_dead,
    )  # fmt: skip


# ── as a source of workers ───────────────────────────────────────────────────────────────────────────
class Launching:
    """The `hosts` of a replica file: launched at the start, adopted after a restart, served by `/replicas`."""

    def __init__(self, settings: ServeSettings, file: ReplicaFile, *, api_key: str | None) -> None:
        self._settings = settings
        self._file = file
        self._api_key = api_key
        self._initial = initial_replicas(file, settings.initial_replicas, settings.max_replicas)
        self._pool = Pool(launches_of(file), ceiling(file, settings.max_replicas))
        self._machines = machines_of(file.hosts, host_keys=settings.ssh_host_keys)
        self._state = StateFile(Path(settings.state_file) if settings.state_file else None)
        self._keep = (settings.on_exit or ("keep" if settings.state_file else "stop")) == "keep"
        self._hurried = asyncio.Event()
        self._supervisor: Supervisor | None = None
        self._table: RegistryTable
        self._initial_launch: asyncio.Task[Any] | None = None
        self._adopted = self._missing = 0

    @property
    def declared(self) -> bool:
        """Whether the file declares machines."""
        return bool(self._file.hosts)

    async def start(self, registry: Registry, fetch: Fetch, *, address: str) -> None:
        """Lock and read the state, adopt, begin to launch what is missing. Raises StateLocked, ConfigError."""
        rules, clock = rules_of(self._settings), RealTime()
        self._state.lock(address)
        processes = Processes(self._machines, RealNet(fetch), clock, rules)
        self._table = RegistryTable(registry, api_key=self._api_key)
        self._supervisor = Supervisor(self._pool, processes, self._table, self._state, rules=rules, time=clock)
        self._adopted = len(await self._supervisor.adopt())
        self._supervisor.begin()
        self._missing = max(0, self._initial - self._pool.owned)
        self._initial_launch = asyncio.create_task(self._supervisor.launch_many(self._missing))

    async def close(self, say: Callable[[str], None]) -> None:
        """Stop or keep what was launched; a second signal ends it at once, with the state file as it is."""
        if self._supervisor is None:
            return
        supervisor = self._supervisor
        closing = asyncio.create_task(supervisor.close(keep=self._keep))
        hurried = asyncio.create_task(self._hurried.wait())
        await asyncio.wait({closing, hurried}, return_when=asyncio.FIRST_COMPLETED)
        if not closing.done():
            supervisor.abandon()
            closing.cancel()
        hurried.cancel()
        if self._initial_launch is not None:
            self._initial_launch.cancel()
        lefts = await asyncio.gather(closing, hurried, self._initial_launch or hurried, return_exceptions=True)
        for left in lefts[0] if isinstance(lefts[0], list) else []:
            log.error("%s", left)
        await asyncio.gather(*(machine.close() for machine in self._machines.values()))
        self._state.unlock()
        if self._keep and self._pool.owned:
            say(f"{self._pool.owned} launched replicas keep running; `infera fleet down {self._file.path} "
                f"--state-file {self._settings.state_file}` stops them")

    def reload(self, file: ReplicaFile) -> None:
        """The file was read again: its commands are for the next launches; slots are those of the start (§1.14)."""
        if file.hosts == self._file.hosts:
            return
        try:
            left_out = self._pool.replan(launches_of(file))
        except ConfigError as error:
            log.warning("%s; launching goes on as before", error.message)
            return
        self._file = file
        for name in left_out:
            log.warning("slot %s came, went or moved; that needs a restart", name)

    def hurry(self) -> None:
        """A second signal: end at once, stop nothing more."""
        self._hurried.set()

    def banner(self) -> Iterable[str]:
        """A line a machine, and how many slots are launched."""
        for host in self._file.hosts:
            devices = ",".join(map(str, host.devices))
            yield (f"  host {host.name}  {host.ssh or 'local'}, devices {devices}, {host.devices_per_replica} a "
                   f"replica, {host.capacity} slots, engine {host.engine}")
        yield f"  adopted {self._adopted}, launching {self._missing} of {self._pool.ceiling} slots"
        if not (self._settings.admin_token or self._settings.admin_token_file):
            who = "everybody" if self._settings.admin_open else "everybody on this machine"
            yield f"  no admin token is set: {who} may launch and stop replicas"

    # ── for the control plane: see gateway's Supervisor ──────────────────────────────────────────────
    def owns(self, name: str) -> bool:
        """See gateway.endpoints.parts.Supervisor."""
        return self._running.is_ours(name)

    async def launch(self, slot: str | None = None) -> tuple[str, str]:
        """See gateway.endpoints.parts.Supervisor."""
        seat = await self._running.launch(slot)
        return seat.name, seat.launch.url

    async def stop(self, name: str, *, drain: bool = True) -> str | None:
        """See gateway.endpoints.parts.Supervisor."""
        return await self._running.stop(name, drain=drain)

    def slots(self) -> Sequence[Mapping[str, Any]]:
        """See gateway.endpoints.parts.Supervisor."""
        rows = [slot_row(seat, ready=self._table.is_ready(seat.name)) for seat in self._pool.seats]
        return [*rows, *map(orphan_row, self._running.orphans)]

    def capacity(self) -> Capacity:
        """Taken, allowed, and free slots in the order they would be taken."""
        free = tuple(seat.name for seat in self._pool.free)
        return Capacity(owned=self._pool.owned, ceiling=self._pool.ceiling, free_slots=free)

    @property
    def _running(self) -> Supervisor:
        if self._supervisor is None:
            raise ConfigError("The server is not started yet.")
        return self._supervisor
