"""`--replicas FILE`: read, turned into workers, and read again on request (replica-router §1.2; R151)."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from infera_cli.errors import ConfigError
from infera_cli.events import Bus, Reloaded
from infera_cli.protocol.replica_file import ReplicaEntry, ReplicaFile, parse
from infera_cli.routing.types import WorkerSpec

log = logging.getLogger("infera.fleet")

SOURCE = "replicas"
Check = Callable[[WorkerSpec, str], None]


class Table(Protocol):
    """What a source needs of the registry."""

    def replace_source(self, source: str, specs: Sequence[WorkerSpec]) -> None:
        """`source` names exactly `specs` now; unchanged ones keep everything."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A file that was read, and the workers it names, in its order; launched ones are not among them."""

    file: ReplicaFile
    specs: tuple[WorkerSpec, ...]


class ReplicaSource:
    """One replica file. `api_key` and `ca_file` serve entries that name none of their own.

    `check(worker, where it stands)` may refuse a worker by a ConfigError.
    """

    def __init__(
        self, path: str, *, router_port: int | None = None,
        api_key: str | None = None, ca_file: str | None = None, check: Check = lambda _spec, _where: None,
    ) -> None:  # fmt: skip
        self.path = path
        self._check = check
        self._router_port = router_port
        self._api_key = api_key
        self._ca_file = ca_file

    def load(self) -> Loaded:
        """Read the file and the key files it names; relative names start at the file's own folder.

        Raises ConfigError, and changes nothing anywhere.
        """
        file = parse(_read(self.path), path=self.path, router_port=self._router_port)
        specs = tuple(self._spec(entry, index) for index, entry in enumerate(file.replicas))
        return Loaded(file, specs)

    def reload(self, table: Table, bus: Bus) -> Loaded | None:
        """Read the file again and put its workers into `table`; tells the outcome as an event.

        A file that cannot be used, an empty one included, leaves the table as it is, and None is returned.
        """
        try:
            loaded = self.load()
        except ConfigError as error:
            bus.emit(Reloaded(self.path, error.message))
            return None
        table.replace_source(SOURCE, loaded.specs)
        bus.emit(Reloaded(self.path))
        return loaded

    def _spec(self, entry: ReplicaEntry, index: int) -> WorkerSpec:
        where = f"{self.path}: replicas[{index}]"
        common_ca = self._ca_file if entry.scheme == "https" else None
        spec = WorkerSpec(
            id=entry.name, host=entry.host, port=entry.port,
            scheme=entry.scheme, path_prefix=entry.path_prefix, address=entry.address,
            models=entry.models, source=SOURCE,
            api_key=self._key(entry.api_key_file, where) if entry.api_key_file else self._api_key,
            ca_file=self._authority(entry.ca_file, where) if entry.ca_file else common_ca,
        )
        self._check(spec, where)
        return spec

    def _beside(self, name: str) -> Path:
        return Path(self.path).parent / Path(name).expanduser()

    def _key(self, name: str, where: str) -> str:
        path = self._beside(name)
        try:
            key = path.read_text(encoding="ascii").strip()
            mode = path.stat().st_mode
        except OSError as error:
            raise ConfigError(f'{where}: "api_key_file" {path} cannot be read: {error.strerror}') from None
        except UnicodeDecodeError:
            key = ""
        if not key or not key.isprintable():
            # The key goes into a header line, and what it is must not be told.
            raise ConfigError(f'{where}: "api_key_file" {path} does not hold one key on one line of ASCII')
        if mode & 0o077:
            log.warning("%s can be read by others than its owner; chmod 600 it", path)
        return key

    def _authority(self, name: str, where: str) -> str:
        path = self._beside(name)
        try:
            ssl.create_default_context(cafile=path)
        except ssl.SSLError:
            raise ConfigError(f'{where}: "ca_file" {path} holds no PEM certificate') from None
        except OSError as error:
            raise ConfigError(f'{where}: "ca_file" {path} cannot be read: {error.strerror}') from None
        return str(path)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path!a}: cannot be read: {error}") from None
