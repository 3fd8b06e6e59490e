"""A host entry of the replica file: a machine to launch replicas on (replica-router §1.2, §1.3)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from infera_cli.protocol.address import bare_host
from infera_cli.protocol.place import Place, shown

ENGINES = ("pypto", "vllm", "sglang", "atom", "sim", "custom")
FIELDS = (
    "name", "ssh", "identity_file", "devices", "devices_per_replica", "port_base", "model",
    "served_model_name", "serve_args", "env", "launch_wrapper", "stop_command", "python", "workdir",
    "log_dir",
)
EXTRA_FIELDS = ("engine", "command", "address")

_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?\Z", re.ASCII)
_MOST_DEVICES = 4096
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LISTS = ("serve_args", "launch_wrapper", "stop_command", "command")
_TEXTS = ("ssh", "identity_file", "model", "served_model_name", "python", "workdir", "log_dir")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """One machine, its devices, and how a replica on it is started.

    `ssh` is None for the machine the router runs on. `devices_per_replica` consecutive `devices` carry one
    replica. `command` is the whole serving command of engine `custom`. `address` is dialled over HTTP instead
    of the ssh destination's host.
    """

    name: str
    devices: tuple[int, ...]
    model: str
    devices_per_replica: int = 1
    port_base: int = 8001
    ssh: str | None = None
    identity_file: str | None = None
    served_model_name: str | None = None
    serve_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    launch_wrapper: tuple[str, ...] = ()
    stop_command: tuple[str, ...] = ()
    python: str = "python3"
    workdir: str | None = None
    log_dir: str = "/tmp/pypto-serving-router"  # noqa: S108 - the documented default
    engine: str = "pypto"
    command: tuple[str, ...] = ()
    address: str | None = None

    @property
    def local(self) -> bool:
        """It is the machine the router runs on."""
        return self.ssh is None

    @property
    def capacity(self) -> int:
        """How many replicas fit."""
        return len(self.devices) // self.devices_per_replica

    @property
    def reached_at(self) -> str:
        """Host that its replicas are dialled at: `address`, else loopback, else what follows the last `@`."""
        if self.address is not None:
            return self.address
        return "127.0.0.1" if self.ssh is None else ssh_host(self.ssh)


def ssh_host(destination: str) -> str:
    """The host part of an ssh destination."""
    return destination.rpartition("@")[2]


def parse_host(value: object, index: int, file: Place) -> HostEntry:
    """Rows 12–24 and 30 for `hosts[index]`; raises ConfigError."""
    place = file.within(f"hosts[{index}]")
    entry = place.object(value)
    place.only(entry, FIELDS + EXTRA_FIELDS)
    devices = _devices(entry, place)
    env = _env(entry, place)
    lists: dict[str, Any] = {key: place.texts(entry, key) for key in _LISTS}
    port_base = place.number(entry, "port_base", 8001)
    width = place.number(entry, "devices_per_replica", 1)
    if width < 1:
        raise place.refuse(f'"devices_per_replica" must be at least 1, not {width}')
    given: dict[str, Any] = {key: text for key in _TEXTS if (text := place.text(entry, key)) is not None}
    name = _name(entry, index, place)
    named = file.within(f"hosts[{index}] ({name})")
    _check_groups(devices, width, given.get("model"), named)
    _check_ports(name, devices, width, port_base, named)
    return HostEntry(
        name=name, devices=devices, devices_per_replica=width, port_base=port_base, env=env,
        address=_address(entry, place), engine=_engine(entry, lists["command"], named),
        **lists, **given,
    )


def check_ssh(host: HostEntry, index: int, file: Place) -> None:
    """Row 30, and the forms that would be misread as a host name (§1.3); raises ConfigError."""
    ssh, place = host.ssh, file.within(f"hosts[{index}] ({host.name})")
    if ssh is None:
        return
    if ssh.startswith("-"):
        raise place.refuse(f'"ssh" must not begin with "-": {shown(ssh)}')
    if not ssh.isprintable() or any(char.isspace() for char in ssh):
        raise place.refuse(f'"ssh" holds white space or a control character: {shown(ssh)}')
    if "://" in ssh:
        raise place.refuse(f'"ssh" takes user@host, not a URL: {shown(ssh)}')
    try:
        bare_host(ssh_host(ssh))
    except ValueError as reason:
        raise place.refuse(f'"ssh" takes user@host, without a port (ports belong into the ssh config): '
                           f"{shown(ssh)} {reason}") from None


def _devices(entry: Mapping[str, Any], place: Place) -> tuple[int, ...]:
    devices = entry.get("devices")
    if isinstance(devices, str) and devices:
        devices = devices.split(",")
    if not isinstance(devices, list) or not devices:
        raise place.refuse(f'"devices" must be a list of at least one device id, not {shown(devices)}')
    return tuple(device for item in devices for device in _device_ids(item, place))


def _device_ids(item: object, place: Place) -> Iterable[int]:
    """One id, or a range such as "0-7", both ends included."""
    if type(item) is int and item >= 0:
        return (item,)
    found = _RANGE.match(item.strip()) if isinstance(item, str) else None
    if found is None:
        raise place.refuse(f'"devices" must hold integers from 0, or ranges like "0-7", not {shown(item)}')
    first, last = int(found[1]), int(found[2] or found[1])
    if not first <= last < first + _MOST_DEVICES:
        raise place.refuse(f'"devices" holds {shown(item)}, which is no range of at most {_MOST_DEVICES} devices')
    return range(first, last + 1)


def _env(entry: Mapping[str, Any], place: Place) -> dict[str, str]:
    env = entry.get("env", {})
    if not isinstance(env, dict):
        raise place.refuse(f'"env" must be an object of strings, not {shown(env)}')
    for key, value in env.items():
        if not isinstance(value, str):
            raise place.refuse(f'"env" must map strings to strings; {shown(key)} is not mapped to one')
        if not _ENV_NAME.match(key):
            raise place.refuse(f'"env" holds {shown(key)}, which is not a name for an environment variable')
        if "\0" in value:
            raise place.refuse(f'"env" holds a NUL character under {shown(key)}')
    return env


def _name(entry: Mapping[str, Any], index: int, place: Place) -> str:
    name = place.text(entry, "name") or f"host{index}"
    if "/" in name or not name.isprintable():
        # The names of slots are names of log files as well.
        raise place.refuse(f'"name" must not hold "/" or control characters: {shown(name)}')
    return name


def _check_groups(devices: tuple[int, ...], width: int, model: str | None, place: Place) -> None:
    twice = [shown(device) for device, count in Counter(devices).items() if count > 1]
    if twice:
        raise place.refuse(f'"devices" lists {", ".join(twice)} twice')
    if model is None:
        raise place.refuse('"model" is missing: the path of the model on that machine')
    if len(devices) % width:
        raise place.refuse(f"{len(devices)} devices are not a whole multiple of devices_per_replica {width}")


def _check_ports(name: str, devices: tuple[int, ...], width: int, port_base: int, place: Place) -> None:
    for first in devices[::width]:
        if not 1 <= port_base + first <= 65535:
            raise place.refuse(f"slot {name}-d{first} would listen on port {shown(port_base + first)} "
                               f'("port_base" {shown(port_base)} + device {shown(first)}), outside 1–65535')


def _engine(entry: Mapping[str, Any], command: tuple[str, ...], place: Place) -> str:
    engine = entry.get("engine", "pypto")
    if engine not in ENGINES:
        raise place.refuse(f'"engine" must be one of {", ".join(ENGINES)}, not {shown(engine)}')
    if engine == "custom" and not command:
        raise place.refuse('"engine" custom needs "command", the list of words that start the engine')
    if command and engine != "custom":
        raise place.refuse(f'"command" goes only with "engine" custom, not with {engine}')
    return str(engine)


def _address(entry: Mapping[str, Any], place: Place) -> str | None:
    address = place.text(entry, "address")
    if address is None:
        return None
    try:
        return bare_host(address)
    except ValueError as reason:
        raise place.refuse(f'"address" {shown(address)} {reason}') from None
