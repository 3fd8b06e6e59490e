"""Secrets as they are used: from a flag, the environment, or a file (rulings 7)."""

from __future__ import annotations

from pathlib import Path

from infera_cli.errors import ConfigError


def read_lines(path: str, what: str) -> tuple[str, ...]:
    """The lines of a secret file, blank ones and `#` comments left out; `what` names it in errors.

    Raises ConfigError.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except OSError as fault:
        raise ConfigError(f"cannot read the {what} in {path}: {fault.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the {what} in {path} is not UTF-8 text") from None
    lines = tuple(line.strip() for line in text.splitlines())
    kept = tuple(line for line in lines if line and not line.startswith("#"))
    if not kept:
        raise ConfigError(f"{path} is empty, it should hold the {what}")
    return kept


def one(value: str | None, path: str | None, what: str) -> str | None:
    """A single secret, given as a value or as a file. Raises ConfigError on both, or none inside."""
    if value is not None and path is not None:
        raise ConfigError(f"the {what} is given twice, as a value and as a file; leave one out")
    if path is None:
        return value
    lines = read_lines(path, what)
    if len(lines) > 1:
        raise ConfigError(f"the {what} in {path} must be one line, not {len(lines)}")
    return lines[0]


def readable_by_others(path: str) -> bool:
    """Whether others than the owner may read the file; worth a warning."""
    return bool(Path(path).expanduser().stat().st_mode & 0o077)
