"""Files that a command writes when its work is done: looked at before the work, and a lost one costs no other."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path

from infera_cli.cli.console import console
from infera_cli.errors import ConfigError, InferaError, UsageError


def check(files: Mapping[str, Path | None]) -> None:
    """Find out whether `files`, by the option that names them, can be written, by doing so beside them.

    Raises ConfigError for one that cannot be, UsageError for two that are the same.
    """
    known = {flag: path for flag, path in files.items() if path is not None}
    for (flag, path), (other, second) in combinations(known.items(), 2):
        if path.resolve() == second.resolve():
            raise UsageError(f"{flag} and {other} are the same file, {path}: one would overwrite the other")
    for path in known.values():
        possible(path)


def make(folder: Path) -> None:
    """Have `folder`, and those above it. Raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        why = "it is a file" if isinstance(fault, FileExistsError) else fault.strerror
        raise ConfigError(f"cannot make the folder {folder}: {why}") from None


def possible(path: Path) -> None:
    """Leave `path` as it is, and raise ConfigError when it cannot be written."""
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent} to write {path.name} into")
    if path.is_dir():
        raise ConfigError(f"cannot write {path}: it is a folder")
    if _is_device(path):
        if not os.access(path, os.W_OK):
            raise ConfigError(f"cannot write {path}: permission denied")
        return
    beside = _beside(path)
    try:
        beside.touch(exist_ok=False)
        beside.unlink()
    except OSError as fault:
        raise ConfigError(f"cannot write {path}: {fault.strerror}") from None


def write(path: Path, content: bytes) -> None:
    """Whole or not at all. Raises ConfigError."""
    beside = path if _is_device(path) else _beside(path)
    try:
        beside.write_bytes(content)
        if beside != path:
            beside.replace(path)
    except OSError as fault:
        if beside != path:
            beside.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {path}: {fault.strerror}") from None


def each(work: Mapping[Path | None, Callable[[], bytes]]) -> list[str]:
    """Write every file that has a name; a sentence for each that could not be."""
    lost = []
    for path, content in work.items():
        if path is not None:
            try:
                write(path, content())
            except InferaError as fault:
                lost.append(fault.message)
            else:
                if sys.stderr.isatty():
                    console.say(f"wrote {path}")
    return lost


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def _is_device(path: Path) -> bool:
    """A pipe, a terminal, /dev/null: there, but no file that another could take the place of."""
    return path.exists() and not path.is_file()
