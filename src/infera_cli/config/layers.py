"""Settings from five places, first come first served: flag, environment, project file, user file, default.

Each value remembers where it came from. Whatever cannot be read, is out of range or has an unknown name stops
the program with one sentence; nothing is skipped silently. (Source: design.md §5; rulings 5, 21.)
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from infera_cli.config.catalogue import Setting, catalogue
from infera_cli.config.files import Table, read_settings_file, settings_files
from infera_cli.config.kinds import LaterError, Many, RangeError, ReadError
from infera_cli.config.later import LATER, refuse, variable
from infera_cli.config.near import near
from infera_cli.config.settings import SECTIONS
from infera_cli.errors import ConfigError, UsageError

S = TypeVar("S")

Flags = Mapping[str, "str | bool | Sequence[str] | None"]
"""Flags by field name as typed: text, True/False for switches, a list for repeated ones, None if absent."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: `layer` is flag, environment, file or default; `name` says which one."""

    layer: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.layer} {self.name}".rstrip()


DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """Settings, and for each of their fields its origin."""

    settings: S
    origins: Mapping[str, Origin]

    def given(self, name: str) -> bool:
        """Whether somebody set this, rather than leaving the default."""
        return self.origins[name] is not DEFAULT


def load(
    model: type[S], flags: Flags, environ: Mapping[str, str], *,
    section: str, files: Sequence[Path] | None = None,
) -> Loaded[S]:
    """Resolve every setting of `model`; `files` are the settings files, strongest first (None: the usual).

    Raises UsageError (a flag that does not parse, a value for later versions), ConfigError (everything else).
    """
    rows = catalogue(model)
    files = settings_files(environ) if files is None else files
    layers = [_from_flags(rows, flags), _from_environment(rows, environ)]
    layers += [_from_table(rows, table) for table in _tables(section, files)]
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for name, row in rows.items():
        found = next((layer[name] for layer in layers if name in layer), None)
        values[name], origins[name] = found or (row.default, DEFAULT)
        if found:
            _check(row, *found)
    return Loaded(model(**values), origins)


Layer = dict[str, tuple[Any, Origin]]


def _from_flags(rows: Mapping[str, Setting], flags: Flags) -> Layer:
    layer: Layer = {}
    for name, typed in flags.items():
        row = rows[name]
        if typed is None or typed in ((), []):
            continue
        try:
            layer[name] = (_read_flag(row, typed), Origin("flag", f"--{row.flag}"))
        except ReadError as reason:
            raise UsageError(f"--{row.flag} {reason}, not {_shown(row, typed)}") from None
    return layer


def _read_flag(row: Setting, typed: str | bool | Sequence[str]) -> Any:
    if isinstance(typed, bool):
        return typed
    if isinstance(row.kind, Many):
        return row.kind.read_all([typed] if isinstance(typed, str) else typed)
    return row.kind.read(str(typed))


def _from_environment(rows: Mapping[str, Setting], environ: Mapping[str, str]) -> Layer:
    _refuse_misspelt(environ)
    layer: Layer = {}
    for name, row in rows.items():
        given = next((v for v in row.envs if v in environ), None)
        if given is None:
            continue
        try:
            layer[name] = (row.kind.read(environ[given]), Origin("environment", given))
        except ReadError as reason:
            raise ConfigError(f"{given} {reason}, not {_shown(row, environ[given])}"
                              + _service_link(environ[given])) from None
    return layer


def _service_link(value: str) -> str:
    """Kubernetes sets INFERA_PORT=tcp://… in every pod when a Service is called `infera`."""
    if not value.startswith("tcp://"):
        return ""
    return " (Kubernetes sets this for a Service of that name; turn it off with enableServiceLinks: false)"


_SERVICE_LINK = re.compile(r"_PORT_\d+_|_SERVICE_(HOST|PORT)")


def _refuse_misspelt(environ: Mapping[str, str]) -> None:
    """Other programs may own INFERA_… names, so only one that is nearly ours is taken for a mistake."""
    known = {v for model in SECTIONS.values() for row in catalogue(model).values() for v in row.envs}
    known |= {variable(flag) for flag in LATER}
    known |= {"INFERA_DEBUG", "INFERA_NO_INPUT"}
    strange = [name for name in environ if name.startswith("INFERA_") and name not in known]
    for name in strange:
        if _SERVICE_LINK.search(name):
            continue
        meant = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
        if meant:
            raise ConfigError(f"unknown environment variable {name}; did you mean {meant[0]}?")


def _tables(section: str, files: Sequence[Path]) -> Iterator[Table]:
    for path in files:
        document = read_settings_file(path)
        if document is not None:
            yield from (table for table in document if table.section == section)


def _from_table(rows: Mapping[str, Setting], table: Table) -> Layer:
    """What one table of a settings file says. Raises ConfigError, UsageError."""
    layer: Layer = {}
    for key, value in table.values.items():
        name = key.replace("-", "_")
        if name not in rows:
            if key.replace("_", "-") in LATER:
                raise refuse(key.replace("_", "-"), f"{key!r} in {table.path}")
            meant = near(key.replace("_", "-"), [row.flag for row in rows.values()])
            hint = f"; did you mean {' or '.join(map(repr, meant))}?" if meant else ""
            raise ConfigError(f"{table.path}: unknown key {key!r} in [{table.section}]{hint}")
        try:
            layer[name] = (rows[name].kind.take(value), Origin("file", str(table.path)))
        except ReadError as reason:
            shown = _shown(rows[name], value)
            raise ConfigError(f"{table.path}: {key} in [{table.section}] {reason}, not {shown}") from None
    return layer


def settings_of(table: Table) -> Any:
    """The settings of one table alone, all else at its default. Raises ConfigError or UsageError."""
    model = SECTIONS[table.section]
    rows = catalogue(model)
    layer = _from_table(rows, table)
    for name, (value, origin) in layer.items():
        _check(rows[name], value, origin)
    return model(**{name: value for name, (value, _) in layer.items()})


def _check(row: Setting, value: Any, origin: Origin) -> None:
    """A value that was read must also make sense. Raises ConfigError, UsageError."""
    spelt = f"{origin.name}: {row.flag}" if origin.layer == "file" else origin.name
    try:
        row.kind.check(value)
    except RangeError as reason:
        instead = f", not {_shown(row, value)}" if value not in ("", 0) and not row.secret else ""
        raise ConfigError(f"{spelt} {reason}{instead}") from None
    except LaterError as reason:
        raise UsageError(f"{spelt}: {reason}") from None


def _shown(row: Setting, value: Any) -> str:
    if row.secret:
        return "what was given"
    return repr(value) if isinstance(value, str) else str(value)
