"""The settings files: where they are, and what is in them (rulings 21)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infera_cli.config.settings import SECTIONS
from infera_cli.errors import ConfigError

PROJECT_FILE = Path("infera.toml")


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a settings file, e.g. `[serve]`, keys as written."""

    path: Path
    section: str
    values: Mapping[str, Any]


def settings_files(environ: Mapping[str, str]) -> Sequence[Path]:
    """The project's file, then the user's; neither needs to exist."""
    home = environ.get("HOME")
    base = environ.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    return [PROJECT_FILE, Path(base) / "infera" / "config.toml"] if base else [PROJECT_FILE]


def read_settings_file(path: Path) -> Sequence[Table] | None:
    """The tables of a settings file, None when there is no such file. Raises ConfigError."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise ConfigError(f"cannot read {path}: {fault.strerror}") from None
    except UnicodeDecodeError as fault:
        raise ConfigError(f"{path} is not UTF-8 text (byte {fault.start})") from None
    return parse_settings(text, path)


def parse_settings(text: str, path: Path) -> Sequence[Table]:
    """The tables of a settings document. Raises ConfigError."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise ConfigError(f"{path} is not valid TOML: {fault}") from None
    known = ", ".join(f"[{name}]" for name in SECTIONS)
    for key, value in document.items():
        if key not in SECTIONS:
            raise ConfigError(f"{path}: unknown table or key {key!r}; a settings file has the tables {known}")
        if not isinstance(value, dict):
            raise ConfigError(f"{path}: {key!r} must be a table, written [{key}]")
    return [Table(path, key, value) for key, value in document.items()]
