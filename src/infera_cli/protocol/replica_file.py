"""The replica file: engines that already run, and machines that more may be launched on.

Rows are those of replica-router §1.2, checked in that order. Beyond the sheet a replica may say `models`,
`address`, `api_key_file`, `ca_file` and `path_prefix`, a host `engine`, `command` and `address`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from infera_cli.protocol.address import bare_host, dial_key, path_prefix
from infera_cli.protocol.place import Place, listed, shown, unknown_keys
from infera_cli.protocol.replica_hosts import HostEntry, check_ssh, parse_host
from infera_cli.protocol.slots import Slot, pool_of

FIELDS = ("name", "host", "port", "scheme")
EXTRA_FIELDS = ("models", "address", "api_key_file", "ca_file", "path_prefix")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaEntry:
    """One engine that already runs, as the file says it; files it names are not opened here."""

    name: str
    host: str
    port: int
    scheme: Literal["http", "https"] = "http"
    models: tuple[str, ...] = ()
    address: str | None = None
    api_key_file: str | None = None
    ca_file: str | None = None
    path_prefix: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaFile:
    """A replica file that passed every check; `slots` are in pool order."""

    path: str
    replicas: tuple[ReplicaEntry, ...]
    hosts: tuple[HostEntry, ...]
    slots: tuple[Slot, ...]


def parse(text: bytes, *, path: str, router_port: int | None) -> ReplicaFile:
    """`text` as a replica file. `path` is for messages; `router_port` is the router's own, None or 0 unknown.

    Raises ConfigError: one sentence with path, entry index and key.
    """
    file = Place(path)
    top = _top(_json(text, file), file)
    replicas = tuple(_replica(value, index, file) for index, value in enumerate(top["replicas"]))
    hosts = tuple(parse_host(value, index, file) for index, value in enumerate(top["hosts"]))
    slots = tuple(pool_of(hosts))
    _unique("replica", [replica.name for replica in replicas], "replicas", file)
    _unique("host", [host.name for host in hosts], "hosts", file)
    _check_names(replicas, slots, file)
    _check_addresses(replicas, slots, file)
    _check_router(slots, router_port, file)
    for index, host in enumerate(hosts):
        check_ssh(host, index, file)
    return ReplicaFile(path, replicas, hosts, slots)


def ceiling(file: ReplicaFile, max_replicas: int | None) -> int:
    """How many replicas may be launched at most: the declared pool, or the cap where that is lower."""
    return len(file.slots) if max_replicas is None else min(len(file.slots), max_replicas)


def initial_replicas(file: ReplicaFile, asked: int | None, max_replicas: int | None) -> int:
    """How many replicas to launch at the start: as asked, else 1 where the file has hosts.

    Raises ConfigError when more are asked for than the ceiling allows (A25).
    """
    most = ceiling(file, max_replicas)
    if asked is None:
        return min(1, most)
    if asked > most:
        capped = max_replicas is not None and max_replicas < len(file.slots)
        reason = f"which --max-replicas {max_replicas} sets" if capped else "the pool that its hosts declare"
        raise Place(file.path).refuse(f"--initial-replicas {asked} is above the ceiling of {most}, {reason}")
    return asked


# ── the file as a whole: rows 2–6 ────────────────────────────────────────────────────────────────────
def _json(text: bytes, file: Place) -> object:
    try:
        decoded = text.decode("utf-8-sig")
        return json.loads(decoded, object_pairs_hook=_no_key_twice, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise file.refuse(f"is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise file.refuse(f"is not valid JSON: {error.msg}, {where}") from None
    except RecursionError:
        raise file.refuse("is not valid JSON: nested too deeply") from None
    except ValueError as error:
        raise file.refuse(f"is not valid JSON: {error}") from None


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
        raise ValueError(f"{listed(twice)} stands twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _top(value: object, file: Place) -> dict[str, list[Any]]:
    if not isinstance(value, dict):
        raise file.refuse('must be a JSON object with "replicas" and/or "hosts" at the top')
    file.only(value, ("replicas", "hosts"))
    top = {key: value.get(key, []) for key in ("replicas", "hosts")}
    if not all(isinstance(entries, list) for entries in top.values()):
        raise file.refuse('both "replicas" and "hosts" must be lists')
    if not any(top.values()):
        raise file.refuse('names no engine: give at least one entry under "replicas" or "hosts"')
    return top


# ── one replica: rows 7–11 ───────────────────────────────────────────────────────────────────────────
def _replica(value: object, index: int, file: Place) -> ReplicaEntry:
    place = file.within(f"replicas[{index}]")
    entry = _with_address(value, place)
    place.only(entry, FIELDS + EXTRA_FIELDS)
    port = entry["port"]
    if type(port) is not int or not 1 <= port <= 65535:
        raise place.refuse(f'"port" must be an integer from 1 to 65535, not {shown(port)}')
    scheme = entry.get("scheme", "http")
    if scheme not in ("http", "https"):
        raise place.refuse(f'"scheme" must be "http" or "https", not {shown(scheme)}')
    host = _checked(entry, "host", bare_host, place)
    if host is None:
        raise place.refuse('"host" must be a non-empty string')
    return ReplicaEntry(
        name=_name(entry, host, port, place), host=host, port=port, scheme=scheme,
        models=_models(entry, place), address=_checked(entry, "address", bare_host, place),
        api_key_file=place.text(entry, "api_key_file"), ca_file=_ca_file(entry, scheme, place),
        path_prefix=_checked(entry, "path_prefix", path_prefix, place) or "",
    )


def _with_address(value: object, place: Place) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise place.refuse(f'must be an object with "host" and "port", not {shown(value)}')
    missing = [f'"{key}"' for key in ("host", "port") if key not in value]
    if missing:
        unknown = unknown_keys(value, FIELDS + EXTRA_FIELDS)
        raise place.refuse(f'needs "host" and "port"; {" and ".join(missing)} missing'
                           + (f", {unknown}" if unknown else ""))
    return value


def _checked(entry: dict[str, Any], key: str, check: Callable[[str], str], place: Place) -> str | None:
    text = place.text(entry, key)
    if text is None:
        return None
    try:
        return check(text)
    except ValueError as reason:
        raise place.refuse(f'"{key}" {shown(text)} {reason}') from None


def _name(entry: dict[str, Any], host: str, port: int, place: Place) -> str:
    name = place.text(entry, "name") or (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    if not name.isprintable():
        raise place.refuse(f'"name" must not hold control characters: {shown(name)}')
    return name


def _models(entry: dict[str, Any], place: Place) -> tuple[str, ...]:
    models = place.texts(entry, "models")
    if not all(models):
        raise place.refuse('"models" holds an empty name')
    return tuple(dict.fromkeys(models))


def _ca_file(entry: dict[str, Any], scheme: str, place: Place) -> str | None:
    ca_file = place.text(entry, "ca_file")
    if ca_file is not None and scheme != "https":
        raise place.refuse('"ca_file" goes only with "scheme" https')
    return ca_file


# ── all together: rows 25–29 ─────────────────────────────────────────────────────────────────────────
def _unique(what: str, names: Iterable[str], key: str, file: Place) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise file.within(key).refuse(
            f'{what} names must be unique, but {listed(twice)} is there twice; give each its own "name"')


def _check_names(replicas: Iterable[ReplicaEntry], slots: Iterable[Slot], file: Place) -> None:
    taken = {slot.name for slot in slots}
    for index, replica in enumerate(replicas):
        if replica.name in taken:
            raise file.within(f"replicas[{index}]").refuse(
                f'"name" {shown(replica.name)} is also the name of a slot under "hosts"')


def _check_addresses(replicas: Iterable[ReplicaEntry], slots: Iterable[Slot], file: Place) -> None:
    holder: dict[tuple[str, int], str] = {}
    for slot in slots:
        key = (dial_key(slot.address), slot.port)
        if key in holder:
            raise file.within("hosts").refuse(
                f"slots {holder[key]} and {slot.name} would both be {slot.address}:{slot.port}; "
                'change a "port_base"')
        holder[key] = slot.name
    for index, replica in enumerate(replicas):
        key = (dial_key(replica.address or replica.host), replica.port)
        if key in holder:
            raise file.within(f"replicas[{index}]").refuse(
                f"{shown(replica.name)} has the address and port of slot {holder[key]}")


def _check_router(slots: Iterable[Slot], router_port: int | None, file: Place) -> None:
    for slot in slots:
        if slot.host.local and slot.port == router_port:
            raise file.within("hosts").refuse(
                f"slot {slot.name} would listen on the router's own port {router_port}; "
                'change "port_base" or --port')
