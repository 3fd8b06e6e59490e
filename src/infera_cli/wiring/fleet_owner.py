"""Who owns the slots of a replica file now: this command itself, or a running server that is asked (rulings 24).

Both answer to the same few calls, so that each verb of `infera fleet` is written once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from infera_cli.client.http import Server
from infera_cli.errors import ConfigError, StateLocked
from infera_cli.gateway.upstream.dial import Dialer
from infera_cli.gateway.upstream.fetch import Fetcher
from infera_cli.gateway.upstream.http import Client
from infera_cli.launch.plan import Launch, shown
from infera_cli.launch.processes import Processes
from infera_cli.launch.replacement import Rules
from infera_cli.launch.seat import Pool
from infera_cli.launch.state import Owner as Holder
from infera_cli.launch.state import Record, StateFile, holder
from infera_cli.launch.supervisor import Supervisor
from infera_cli.launch.takeover import Takeover
from infera_cli.protocol.replica_file import ReplicaFile, parse
from infera_cli.telemetry import logs
from infera_cli.wiring.machines import RealNet, RealTime, launches_of, machines_of, orphan_row, slot_row

_CONNECT = 4.0      # seconds for a connection to a replica
_PROBE = 0.5        # seconds between two looks at a replica's health
_REREAD = 5.0       # seconds that a server gets to read its file again
_LONG = 3600.0      # seconds for a call that drains and stops
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a fleet command was told. Times in seconds."""

    file: Path
    state_file: Path | None = None
    host_keys: str = "strict"
    launch_timeout: float = 600.0
    grace: float = 30.0
    token: str | None = None


class Owner(Protocol):
    """The slots of one file, and what can be done with them."""

    @property
    def name(self) -> str:
        """Who it is, for people."""

    async def rows(self) -> Sequence[Row]:
        """Every slot: see `slot_row`."""

    async def launch(self, slot: str) -> None:
        """Start the replica of a slot. Raises InferaError."""

    async def stop(self, slot: str, *, drain: bool) -> str | None:
        """Stop it and wait; what is left of it in words. Raises InferaError."""

    async def tail(self, slot: str) -> str:
        """The last lines of a failed launch's log; empty when they cannot be had, or were told already."""

    async def reread(self, digests: Mapping[str, str]) -> None:
        """Launch by the file as it is now; `digests` are its, by slot. Raises ConfigError."""


def default_state(file: Path, environ: Mapping[str, str]) -> Path:
    """The state file of a replica file under the XDG state folder, named after it."""
    base = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".local" / "state")
    whole = str(file.resolve()).strip("/").replace("/", "%")
    return Path(base) / "infera" / f"{whole}.state"


def quiet() -> None:
    """Only warnings of the supervisor are told: the command itself says what it does."""
    logs.setup("warning", "text")


def command_line(launch: Launch) -> str:
    """A launch as a person would type it, values of the environment left out."""
    return shown(launch)


def load(options: Options) -> tuple[ReplicaFile, list[Launch]]:
    """The file and its launches. Raises ConfigError."""
    try:
        text = options.file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{options.file}: cannot be read: {error.strerror}") from None
    file = parse(text, path=str(options.file), router_port=None)
    if not file.hosts:
        raise ConfigError(f'{options.file}: declares no machines under "hosts", so there is nothing to launch')
    return file, launches_of(file)


def state_path(options: Options) -> Path:
    """The state file that is meant."""
    return options.state_file or default_state(options.file, os.environ)


@contextlib.asynccontextmanager
async def owned(options: Options) -> AsyncIterator[Owner]:
    """The slots, by the server that owns them, or else by this process for as long as the context lasts.

    Raises StateLocked where the owner serves nothing that could be asked, e.g. another fleet command.
    """
    file, launches = load(options)
    path = state_path(options)
    other = holder(path)
    if other is not None and other.address is not None:
        async with _standing(options, file, launches) as (processes, _pool, _net):
            yield ByServer(other, processes, launches, options)
        return
    async with _standing(options, file, launches) as (processes, pool, net):
        own = Standalone(pool, processes, net, StateFile(path), options)
        await own.open()
        try:
            yield own
        finally:
            await own.close()


@contextlib.asynccontextmanager
async def seen(options: Options) -> AsyncIterator[tuple[Sequence[Row], Processes, dict[str, Launch]]]:
    """A look at every slot that takes nothing over and locks nothing, whoever owns them."""
    file, launches = load(options)
    path = state_path(options)
    async with _standing(options, file, launches) as (processes, pool, net):
        takeover = Takeover(pool, processes, lambda _record, _launch, ready: True)
        state = StateFile(path)
        await takeover.run(state.read(), state.failed())
        rows = await asyncio.gather(*(_seen_row(seat, net) for seat in pool.seats))
        if state.unusable:
            rows = [{**row, "state": "unknown"} if row["state"] == "free" else row for row in rows]
        orphans = map(orphan_row, takeover.orphans.values())
        yield [*rows, *orphans], processes, {launch.slot: launch for launch in launches}


@contextlib.asynccontextmanager
async def reading(options: Options) -> AsyncIterator[tuple[Processes, dict[str, Launch]]]:
    """What reads logs, and the launches by slot."""
    file, launches = load(options)
    async with _standing(options, file, launches) as (processes, _pool, _net):
        yield processes, {launch.slot: launch for launch in launches}


@contextlib.asynccontextmanager
async def _standing(
    options: Options, file: ReplicaFile, launches: Sequence[Launch]
) -> AsyncIterator[tuple[Processes, Pool, RealNet]]:
    dialer = Dialer(_CONNECT)
    client = Client(dialer, idle_limit=_CONNECT, clock=time.monotonic)
    net = RealNet(Fetcher(client, dialer))
    machines = machines_of(file.hosts, host_keys=options.host_keys)
    processes = Processes(machines, net, RealTime(), _rules(options))
    try:
        yield processes, Pool(launches, len(launches)), net
    finally:
        await asyncio.gather(*(machine.close() for machine in machines.values()))
        client.close()


def _rules(options: Options) -> Rules:
    return Rules(launch_timeout=options.launch_timeout, replace_dead=False, grace=options.grace)


async def _seen_row(seat: Any, net: RealNet) -> Row:
    record = seat.record
    ready = not seat.free and record is not None and await net.healthy(record.address, record.port)
    return slot_row(seat, ready=ready)


# ── by this process ──────────────────────────────────────────────────────────────────────────────────
class _Probed:
    """The fleet without a router: see launch.supervisor.Table. Readiness is asked for, not pushed."""

    def __init__(self) -> None:
        self.addresses: dict[str, tuple[str, int]] = {}
        self.ready: set[str] = set()

    def enter(self, record: Record, launch: Launch, *, ready: bool) -> bool:
        self.addresses[record.slot] = record.address, record.port
        if ready:
            self.ready.add(record.slot)
        return True

    def leave(self, name: str) -> None:
        self.addresses.pop(name, None)
        self.ready.discard(name)

    def drain(self, name: str) -> None:
        """Nobody routes to it here; a router that does is told by the command."""

    def outstanding(self, name: str) -> int:
        return 0

    def is_ready(self, name: str) -> bool:
        return name in self.ready

    def is_draining(self, name: str) -> bool:
        return False


class Standalone:
    """See Owner: this process holds the lock and supervises for as long as the command runs."""

    def __init__(self, pool: Pool, processes: Processes, net: RealNet, state: StateFile, options: Options) -> None:
        self._pool, self._net, self._state = pool, net, state
        self._table = _Probed()
        self._supervisor = Supervisor(
            pool, processes, self._table, state, rules=_rules(options), time=RealTime()
        )
        self._prober: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """See Owner."""
        return "this command"

    async def open(self) -> None:
        """Lock the state and take over. Raises StateLocked."""
        self._state.lock(None)
        await self._supervisor.adopt()
        self._prober = asyncio.create_task(self._probe())

    async def close(self) -> None:
        """What was launched goes on; the state says where."""
        if self._prober is not None:
            self._prober.cancel()
        await self._supervisor.close(keep=True)
        self._state.unlock()

    async def rows(self) -> Sequence[Row]:
        """See Owner."""
        rows = [slot_row(seat, ready=self._table.is_ready(seat.name)) for seat in self._pool.seats]
        return [*rows, *map(orphan_row, self._supervisor.orphans)]

    async def launch(self, slot: str) -> None:
        """See Owner."""
        await self._supervisor.launch(slot)

    async def stop(self, slot: str, *, drain: bool) -> str | None:
        """See Owner."""
        return await self._supervisor.stop(slot, drain=drain)

    async def tail(self, slot: str) -> str:
        """See Owner: the supervisor is in this process, and tells it in its log."""
        return ""

    async def reread(self, digests: Mapping[str, str]) -> None:
        """See Owner; the file was read when the command began."""

    async def _probe(self) -> None:
        while True:
            await asyncio.gather(*(self._probe_one(*item) for item in list(self._table.addresses.items())))
            await asyncio.sleep(_PROBE)

    async def _probe_one(self, name: str, address: tuple[str, int]) -> None:
        healthy = await self._net.healthy(*address)
        if healthy and self._table.addresses.get(name) == address:
            self._table.ready.add(name)
        elif not healthy:
            self._table.ready.discard(name)


# ── by a running server ──────────────────────────────────────────────────────────────────────────────
class ByServer:
    """See Owner: the server that holds the state file does it, and is asked over its API."""

    def __init__(self, other: Holder, processes: Processes, launches: Sequence[Launch], options: Options) -> None:
        if other.address is None:
            raise StateLocked(f"the state file belongs to {other}, which cannot be asked")
        self._pid = other.pid
        self._processes = processes
        self._launches = {launch.slot: launch for launch in launches}
        self._brief = Server(other.address, token=options.token)
        self._patient = Server(other.address, token=options.token, timeout=_LONG)

    @property
    def name(self) -> str:
        """See Owner."""
        return f"the server at {self._brief.url} (process {self._pid})"

    async def rows(self) -> Sequence[Row]:
        """See Owner."""
        answer = await asyncio.to_thread(self._brief.get, "/replicas")
        found = answer.get("slots", []) if isinstance(answer, dict) else []
        return [row for row in found if isinstance(row, dict)]

    async def launch(self, slot: str) -> None:
        """See Owner."""
        await asyncio.to_thread(self._patient.post, f"/replicas?slot={quote(slot, safe='')}")

    async def stop(self, slot: str, *, drain: bool) -> str | None:
        """See Owner."""
        path = f"/replicas/{quote(slot, safe='')}"
        await asyncio.to_thread(self._patient.delete, path, drain=str(drain).lower())
        return None

    async def tail(self, slot: str) -> str:
        """See Owner; read where it is, as the server does."""
        launch = self._launches.get(slot)
        return "" if launch is None else await self._processes.tail(launch)

    async def reread(self, digests: Mapping[str, str]) -> None:
        """See Owner: the server is told to read its file again."""
        os.kill(self._pid, signal.SIGHUP)  # the lock is of this machine, and held by that very process
        deadline = time.monotonic() + _REREAD
        while _digests(await self.rows()) != digests:
            if time.monotonic() > deadline:
                raise ConfigError(f"{self.name} serves another replica file, or slots came, went or moved; "
                                  "restart it with --on-exit keep, then roll out")
            await asyncio.sleep(0.1)


def _digests(rows: Sequence[Row]) -> dict[str, str]:
    return {str(row["slot"]): str(row.get("digest")) for row in rows if row["state"] != "orphan"}
