"""Machines, slots and the network, as a supervisor needs them; for the server and for `infera fleet` alike."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from infera_cli.errors import ConfigError
from infera_cli.fleet.probe import Fetch
from infera_cli.launch.local import LocalMachine
from infera_cli.launch.machine import Machine
from infera_cli.launch.plan import Launch, base_url, plan
from infera_cli.launch.seat import Seat
from infera_cli.launch.state import Record
from infera_cli.protocol.replica_file import ReplicaFile
from infera_cli.protocol.replica_hosts import HostEntry
from infera_cli.protocol.slots import pool_of
from infera_cli.routing.types import WorkerSpec

_ACCEPT = 2.0   # seconds for a look whether a port is taken
_HEALTHY = 5.0  # seconds for one question after health
log = logging.getLogger("infera.launch")


# ── the outer world, as the supervisor sees it ───────────────────────────────────────────────────────
class RealNet:
    """See launch.processes.Net."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def accepts(self, address: str, port: int) -> bool:
        """See Net."""
        try:
            async with asyncio.timeout(_ACCEPT):
                _, writer = await asyncio.open_connection(address, port)
        except OSError:
            return False
        writer.transport.abort()
        return True

    async def healthy(self, address: str, port: int) -> bool:
        """See Net."""
        try:
            spec = WorkerSpec(id="", host=address, port=port)
            return (await self._fetch(spec, "/health", timeout=_HEALTHY)).status == 200
        except OSError:
            return False


class RealTime:
    """See launch.processes.Time."""

    def now(self) -> float:
        """See Time."""
        return time.monotonic()

    def unix(self) -> float:
        """See Time."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """See Time."""
        await asyncio.sleep(seconds)


# ── machines and slots ───────────────────────────────────────────────────────────────────────────────
def machines_of(hosts: Iterable[HostEntry], *, host_keys: str) -> dict[str, Machine]:
    """A machine a host entry, by the entry's name. Raises ConfigError for an ssh config or key that cannot be used."""
    local = LocalMachine()
    made: dict[str, Machine] = {}
    config: Any = None
    for host in hosts:
        if host.ssh is None:
            made[host.name] = local
            continue
        from infera_cli.launch.ssh import HostKeys, SshMachine  # noqa: PLC0415 - 0.3 s that local fleets need not pay
        from infera_cli.launch.ssh_config import SshConfig  # noqa: PLC0415

        config = config or SshConfig.of_user()
        made[host.name] = SshMachine(
            host.ssh, config=config, identity_file=_identity(host), host_keys=cast("HostKeys", host_keys)
        )
    return made


def located(hosts: Sequence[HostEntry]) -> tuple[HostEntry, ...]:
    """The entries with the address that HTTP goes to: ssh config's HostName where none is given (rulings 13)."""
    if all(host.ssh is None or host.address is not None for host in hosts):
        return tuple(hosts)
    from infera_cli.launch.ssh_config import SshConfig  # noqa: PLC0415

    config = SshConfig.of_user()
    return tuple(
        host if host.ssh is None or host.address is not None
        else replace(host, address=config.resolve(host.ssh).hostname)
        for host in hosts
    )  # fmt: skip


def launches_of(file: ReplicaFile) -> list[Launch]:
    """What may be launched, in pool order. Raises ConfigError."""
    slots = pool_of(located(file.hosts))
    taken: dict[tuple[str, int], str] = {}
    for slot in slots:
        other = taken.setdefault((slot.address, slot.port), slot.name)
        if other != slot.name:
            raise ConfigError(f"{file.path}: hosts: slots {other} and {slot.name} would both be "
                              f"{slot.address}:{slot.port}, once ssh aliases are resolved; change a \"port_base\"")
    return plan(slots, here=sys.executable)


def _identity(host: HostEntry) -> str | None:
    if host.identity_file is None:
        return None
    path = Path(host.identity_file).expanduser()
    try:
        mode = path.stat().st_mode
        with path.open("rb"):
            pass
    except OSError as error:
        raise ConfigError(f'host {host.name}: "identity_file" {path} cannot be read: {error.strerror}') from None
    if mode & 0o077:
        log.warning("%s can be read by others than its owner; chmod 600 it", path)
    return str(path)


def slot_row(seat: Seat, *, ready: bool) -> dict[str, Any]:
    """A slot and what is on it, for people and programs; `ready` is what probes say."""
    record = seat.record
    identity = record.identity if record is not None else None
    return {
        "slot": seat.name, "host": seat.launch.host, "place": seat.launch.place,
        "state": state_word(seat, ready=ready), "ready": ready and not seat.free,
        "url": seat.launch.url, "devices": list(seat.launch.devices), "engine": seat.launch.engine.name,
        "log": seat.launch.log, "digest": seat.launch.digest, "pid": identity.pid if identity else None,
        "launched": record.launched if record is not None else None,
        "drifted": seat.drifted, "error": seat.error,
    }  # fmt: skip


def orphan_row(record: Record) -> dict[str, Any]:
    """The same of something on record that no slot declares any more."""
    return {
        "slot": record.slot, "host": record.host, "place": record.place, "state": "orphan", "ready": False,
        "url": base_url(record.address, record.port), "devices": list(record.devices), "engine": None, "log": None,
        "digest": record.digest, "pid": record.identity.pid if record.identity else None, "launched": record.launched,
        "drifted": True, "error": "its slot is not in the file, or taken",
    }  # fmt: skip


def state_word(seat: Seat, *, ready: bool) -> str:
    """free, starting, loading, ready, down, replacing, stopping; unknown where nobody can say what is on it."""
    if seat.free:
        return "unknown" if seat.suspect else "free"
    if seat.phase == "serving":
        return "ready" if ready else "down"
    return seat.phase
