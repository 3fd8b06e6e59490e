"""The state file: which replicas were launched, so that the next owner finds them (replica-router §1.9).

Reading forgives everything, also the older form with a single device; writing is to a temporary file that is renamed,
mode 0600. A lock file beside it holds pid and address of the owner; the kernel lets go of it whatever ends the owner.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from infera_cli.errors import ConfigError, StateLocked
from infera_cli.launch.script import Identity

log = logging.getLogger("infera.launch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One launched replica. `nonce` is drawn before anything is started, `identity` is known afterwards.

    `ready` says that it has served; `launched` is Unix time; `tree` holds `pid:start` of its processes when last seen.
    `digest` is None in records of other programs.
    """

    slot: str
    host: str
    devices: tuple[int, ...]
    address: str
    port: int
    place: str = "local"
    nonce: str = ""
    digest: str | None = None
    launched: float = 0.0
    ready: bool = False
    identity: Identity | None = None
    tree: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a state file; `address` is None for one that serves nothing."""

    pid: int
    address: str | None

    def __str__(self) -> str:
        return f"process {self.pid}" + (f" at {self.address}" if self.address else "")


class StateFile:
    """One state file; with `path` None nothing is kept, and every call is as good as done."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.unusable = False
        """What `read` found tells nothing of the slots: something may run on any of them."""
        self._lock: int | None = None

    # ── the owner ────────────────────────────────────────────────────────────────────────────────────
    def lock(self, address: str | None) -> None:
        """Become the owner, reachable at `address`. Raises StateLocked naming the holder, ConfigError."""
        if self.path is None or self._lock is not None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(_lock_path(self.path), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(f"the state file {self.path} cannot be locked: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise ConfigError(f"the state file {self.path} cannot be locked: {error.strerror}") from None
            raise StateLocked(
                f"the state file {self.path} belongs to {holder(self.path) or 'somebody'}; "
                "stop that one first, or use another --state-file"
            ) from None
        try:
            os.ftruncate(lock, 0)
            os.write(lock, json.dumps({"pid": os.getpid(), "address": address}).encode())
        except OSError as error:
            os.close(lock)
            raise ConfigError(f"the state file {self.path} cannot be used: {error.strerror}") from None
        self._lock = lock

    def unlock(self) -> None:
        """Give it up."""
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    # ── the content ──────────────────────────────────────────────────────────────────────────────────
    def read(self) -> list[Record]:
        """All records that can be used; the rest is a warning each (B8)."""
        document = self._document()
        if document is None:
            return []
        entries = document.get("replicas") if isinstance(document, dict) else None
        if not isinstance(entries, list):
            log.warning("the state file %s holds no list of replicas, going on without", self.path)
            self.unusable = True
            return []
        return list(self._usable(entries))

    def failed(self) -> dict[str, str]:
        """Slots whose last launch failed, and why; nothing is said twice about a file that cannot be used."""
        document = self._document(tell=False)
        told = document.get("failed") if isinstance(document, dict) else None
        return {name: str(why) for name, why in told.items()} if isinstance(told, dict) else {}

    def _document(self, *, tell: bool = True) -> Any:
        if self.path is None:
            return None
        try:
            return json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            self.unusable = True
            if tell:
                log.warning("the state file %s cannot be used, going on without: %s", self.path, error)
            return None

    def write(self, records: Iterable[Record], failed: Mapping[str, str] | None = None) -> None:
        """Replace the content; a failure is a warning, since the replicas run all the same."""
        if self.path is None:
            return
        document = {"replicas": [_entry(record) for record in records], "failed": dict(failed or {})}
        part = self.path.with_name(self.path.name + ".part")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(part, "w", encoding="utf-8", opener=_private) as file:
                json.dump(document, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path)
        except OSError as error:
            log.warning("the state file %s cannot be written: %s", self.path, error.strerror)
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)

    def _usable(self, entries: list[Any]) -> Iterable[Record]:
        seen: set[str] = set()
        for index, entry in enumerate(entries):
            record = _record(entry)
            if record is None or record.slot in seen:
                log.warning("%s: entry %d is not usable and is left out", self.path, index)
            else:
                seen.add(record.slot)
                yield record


def holder(path: Path) -> Owner | None:
    """Who holds the state file at `path`; None when nobody does, or nobody can be named."""
    try:
        lock = os.open(_lock_path(path), os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _owner(os.read(lock, 4096))
    finally:
        os.close(lock)
    return None


def _owner(content: bytes) -> Owner | None:
    """Who is named there; None where that process is gone, so that somebody else must hold the lock."""
    try:
        told = json.loads(content)
        pid, address = int(told["pid"]), told.get("address")
        os.kill(pid, 0)
    except PermissionError:  # it lives, as another user's
        pass
    except (ValueError, KeyError, TypeError, AttributeError, OSError, OverflowError):
        return None
    return Owner(pid, address if isinstance(address, str) else None)


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


# ── one entry ────────────────────────────────────────────────────────────────────────────────────────
def _entry(record: Record) -> dict[str, Any]:
    entry = asdict(record)
    identity = entry.pop("identity")
    return {**entry, **({} if identity is None else {"process": identity})}


def _record(entry: Any) -> Record | None:
    """An entry as a record; None when it lacks what the sheet's form has."""
    if not isinstance(entry, dict):
        return None
    slot, address, port = entry.get("slot"), entry.get("address"), entry.get("port")
    devices = entry.get("devices", [entry.get("device")])
    usable = (
        isinstance(slot, str) and slot and isinstance(address, str) and address
        and type(port) is int and 1 <= port <= 65535
        and isinstance(devices, list) and all(type(device) is int for device in devices)
    )  # fmt: skip
    if not usable:
        return None
    return Record(
        slot=str(slot), host=_text(entry, "host"), devices=tuple(devices), address=str(address), port=int(str(port)),
        place=_text(entry, "place", "local"), nonce=_text(entry, "nonce"), digest=_text(entry, "digest") or None,
        launched=_number(entry.get("launched")), ready=entry.get("ready") is True,
        identity=_identity(entry.get("process")),
        tree=tuple(member for member in _list(entry.get("tree")) if isinstance(member, str)),
    )  # fmt: skip


def _identity(value: Any) -> Identity | None:
    if not isinstance(value, dict):
        return None
    pid, offset = value.get("pid"), value.get("offset", 0)
    if type(pid) is not int or pid <= 1 or type(offset) is not int:
        return None
    nonce, start, boot = _text(value, "nonce"), _text(value, "start"), _text(value, "boot")
    return Identity(nonce, pid, start, boot, offset) if nonce and start and boot else None


def _text(entry: dict[str, Any], key: str, default: str = "") -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else default


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
