"""Values of a command's own flags, read as settings are: what does not parse is usage, what makes no sense is not."""

from __future__ import annotations

from typing import Any

from infera_cli.config.kinds import Kind, RangeError, ReadError
from infera_cli.errors import ConfigError, UsageError


def value_of(kind: Kind, text: str, flag: str) -> Any:
    """What `text` means for `flag`. Raises UsageError (exit status 2) and ConfigError (1), see rulings 5."""
    try:
        value = kind.read(text)
    except ReadError as reason:
        raise UsageError(f"{flag} {reason}, not {text!r}") from None
    try:
        kind.check(value)
    except RangeError as reason:
        raise ConfigError(f"{flag} {reason}, not {text!r}") from None
    return value
