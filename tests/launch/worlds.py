"""A supervisor in a world of its own: time is turned by hand, machines do as they are told, nothing runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infera_cli.errors import FleetError, LaunchFailed
from infera_cli.launch.plan import Launch, plan
from infera_cli.launch.processes import Processes
from infera_cli.launch.replacement import Rules
from infera_cli.launch.script import Found, Identity
from infera_cli.launch.seat import Pool
from infera_cli.launch.state import Record, StateFile
from infera_cli.launch.supervisor import Supervisor
from infera_cli.protocol.replica_hosts import HostEntry
from infera_cli.protocol.slots import pool_of
from tests.fleet.virtual_time import VirtualTime


def launches(count: int = 2, **fields: Any) -> list[Launch]:
    """Launches of one local host with so many devices."""
    made = HostEntry(name="x", devices=tuple(range(count)), model="/m", **fields)
    return plan(pool_of([made]))


class Clock:
    """See launch.processes.Time, on a virtual clock."""

    def __init__(self, time: VirtualTime) -> None:
        self.time = time

    def now(self) -> float:
        return self.time.now

    def unix(self) -> float:
        return 1_700_000_000 + self.time.now

    async def sleep(self, seconds: float) -> None:
        await self.time.sleep(seconds)


class Table:
    """See launch.table.Table; tests say who is ready and what is open."""

    def __init__(self) -> None:
        self.ready: set[str] = set()
        self.draining: set[str] = set()
        self.present: set[str] = set()
        self.open: dict[str, int] = {}

    def enter(self, record: Record, launch: Launch, *, ready: bool) -> bool:
        self.present.add(record.slot)
        if ready:
            self.ready.add(record.slot)
        return True

    def leave(self, name: str) -> None:
        self.present.discard(name)
        self.ready.discard(name)
        self.draining.discard(name)

    def drain(self, name: str) -> None:
        self.draining.add(name)

    def outstanding(self, name: str) -> int:
        return self.open.get(name, 0)

    def is_ready(self, name: str) -> bool:
        return name in self.ready

    def is_draining(self, name: str) -> bool:
        return name in self.draining


class Nowhere:
    """No network."""

    async def accepts(self, address: str, port: int) -> bool:
        return False

    async def healthy(self, address: str, port: int) -> bool:
        return False


class Scripted(Processes):
    """Processes that only exist in a list: `starts` and `ends` hold (time, slot); `faults` are raised in order."""

    def __init__(self, time: VirtualTime, rules: Rules, machines: Mapping[str, Any]) -> None:
        super().__init__(machines, Nowhere(), Clock(time), rules)
        self.virtual = time
        self.starts: list[tuple[float, str]] = []
        self.ends: list[tuple[float, str]] = []
        self.faults: list[FleetError | None] = []
        self.found: dict[str, Found] = {}
        self.left: str | None = None
        self.end_takes = 0.0

    async def start(self, launch: Launch, nonce: str) -> Identity:
        self.starts.append((self.virtual.now, launch.slot))
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        return Identity(nonce, 4711, "1", "boot")

    async def look(self, launch: Launch, record: Record) -> Found:
        return self.found.get(launch.slot, Found(verified=True, tree=("4711:1",)))

    async def is_there(self, launch: Launch, record: Record) -> bool:
        return (await self.look(launch, record)).verified

    async def tail(self, launch: Launch, lines: int = 30) -> str:
        return "the last line"

    async def end(self, launch: Launch, record: Record) -> str | None:
        if self.end_takes:
            await self.virtual.sleep(self.end_takes)
        self.ends.append((self.virtual.now, launch.slot))
        return self.left


class World:
    """One supervisor with `count` slots and these rules."""

    def __init__(self, count: int = 2, state: Path | None = None, **rules: Any) -> None:
        self.time = VirtualTime()
        self.rules = Rules(**rules)
        self.table = Table()
        self.pool = Pool(launches(count), count)
        self.processes = Scripted(self.time, self.rules, {})
        self.supervisor = Supervisor(
            self.pool, self.processes, self.table, StateFile(state), rules=self.rules, time=Clock(self.time)
        )

    def phase(self, name: str = "x-d0") -> str:
        seat = self.pool.seat(name)
        assert seat is not None
        return seat.phase

    async def serving(self, name: str = "x-d0") -> None:
        """Launch that slot and let it become ready."""
        await self.supervisor.launch(name)
        self.table.ready.add(name)
        await self.time.advance(1.5)
        assert self.phase(name) == "serving"

    def die(self, name: str = "x-d0") -> None:
        """Its probes fail from now on."""
        self.table.ready.discard(name)


REFUSED = LaunchFailed("the command failed")
