"""Client keys and what each of them may: lines of the key file (bench-and-cli §C1; rulings 6)."""

from __future__ import annotations

from dataclasses import dataclass

from infera_cli.config import secrets
from infera_cli.config.settings import ServeSettings
from infera_cli.errors import ConfigError

_FORM = "KEY [models=NAME,PATTERN-*] [per-minute=N]"


@dataclass(frozen=True, slots=True)
class ClientKey:
    """`models` are names and patterns it may ask for, empty for all; `per_minute` how many requests, None for any."""

    key: str
    models: tuple[str, ...] = ()
    per_minute: int | None = None


def client_keys(settings: ServeSettings) -> tuple[ClientKey, ...]:
    """The keys that clients may use, empty when none is needed. Raises ConfigError; shows no key in it."""
    given = [ClientKey(key) for key in settings.api_key]
    if settings.api_key_file is None:
        return tuple(given)
    lines = secrets.read_lines(settings.api_key_file, "client keys")
    read = [_read(line, f"client key {number} in {settings.api_key_file}") for number, line in enumerate(lines, 1)]
    return (*given, *read)


def _read(line: str, where: str) -> ClientKey:
    key, *limits = line.split()
    models: tuple[str, ...] = ()
    per_minute: int | None = None
    for limit in limits:
        name, _, value = limit.partition("=")
        if name == "models":
            models = tuple(filter(None, value.split(",")))
        elif name == "per-minute" and value.isascii() and value.isdigit():
            per_minute = int(value)
        else:
            raise ConfigError(f"{where}: a line must look like {_FORM}")
    if (per_minute is not None and per_minute < 1) or ("models=" in line and not models):
        raise ConfigError(f"{where}: per-minute must be at least 1, and models must name one")
    return ClientKey(key, models, per_minute)
