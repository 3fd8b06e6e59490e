"""Slots: device groups, each with its name, port and placeholders (replica-router §1.3, §1.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from infera_cli.protocol.replica_hosts import HostEntry

_PLACEHOLDER = re.compile(r"\{(device|devices|port)\}")


@dataclass(frozen=True, slots=True)
class Slot:
    """One device group. It depends only on the file, so its identity outlives a restart."""

    name: str
    devices: tuple[int, ...]
    port: int
    host: HostEntry

    @property
    def device(self) -> int:
        """The first device of the group."""
        return self.devices[0]

    @property
    def address(self) -> str:
        """Host its replica is dialled at, always over plain http."""
        return self.host.reached_at

    def expand(self, text: str) -> str:
        """`text` with {device}, {devices} and {port} filled in, in one pass; any other brace stays (B4)."""
        values = {
            "device": str(self.device),
            "devices": ",".join(map(str, self.devices)),
            "port": str(self.port),
        }
        return _PLACEHOLDER.sub(lambda found: values[found[1]], text)

    @property
    def launch_wrapper(self) -> tuple[str, ...]:
        """The host's wrapper, expanded."""
        return tuple(map(self.expand, self.host.launch_wrapper))

    @property
    def stop_command(self) -> tuple[str, ...]:
        """The host's stop command, expanded."""
        return tuple(map(self.expand, self.host.stop_command))

    @property
    def command(self) -> tuple[str, ...]:
        """The command of engine `custom`, expanded."""
        return tuple(map(self.expand, self.host.command))

    @property
    def env(self) -> dict[str, str]:
        """The host's environment, values expanded, names as they are."""
        return {name: self.expand(value) for name, value in self.host.env.items()}


def slots_of(host: HostEntry) -> list[Slot]:
    """The host's slots: consecutive runs of devices in the listed order."""
    width = host.devices_per_replica
    groups = [host.devices[start : start + width] for start in range(0, len(host.devices), width)]
    return [Slot(f"{host.name}-d{group[0]}", group, host.port_base + group[0], host) for group in groups]


def pool_of(hosts: Iterable[HostEntry]) -> list[Slot]:
    """All slots in the order they are filled: this machine's first, otherwise as listed."""
    return [slot for host in sorted(hosts, key=lambda host: not host.local) for slot in slots_of(host)]
