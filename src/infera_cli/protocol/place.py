"""Where in a configuration file a value stands, and the refusal that names it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from infera_cli.errors import ConfigError

_SHOWN = 60


def shown(value: object) -> str:
    """A JSON value for an error message: as JSON writes it, on one line, and never long."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value, ensure_ascii=False)
    text = text if text.isprintable() else json.dumps(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def listed(names: Iterable[str]) -> str:
    """Names for an error message, quoted, sorted."""
    return ", ".join(shown(name) for name in sorted(names))


class Place:
    """A file, or an entry in it; all refusals begin with it.

    `path` is the file as the user named it, `entry` e.g. `replicas[0]`, empty for the file as a whole.
    """

    __slots__ = ("entry", "path")

    def __init__(self, path: str, entry: str = "") -> None:
        self.path = path
        self.entry = entry

    def within(self, entry: str) -> Place:
        """An entry of this file."""
        return Place(self.path, entry)

    def refuse(self, text: str) -> ConfigError:
        """The error to raise: file, entry, and one sentence."""
        return ConfigError(f"{self.path}: {self.entry}: {text}" if self.entry else f"{self.path}: {text}")

    def object(self, value: object) -> dict[str, Any]:
        """`value`, which has to be a JSON object."""
        if not isinstance(value, dict):
            raise self.refuse(f"must be an object, not {shown(value)}")
        return value

    def only(self, entry: Mapping[str, Any], known: Collection[str]) -> None:
        """Refuse keys that nobody knows (A23)."""
        if unknown := unknown_keys(entry, known):
            raise self.refuse(unknown)

    def texts(self, entry: Mapping[str, Any], key: str) -> tuple[str, ...]:
        """The list of strings under `key`; empty when absent."""
        value = entry.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.refuse(f'"{key}" must be a list of strings, not {shown(value)}')
        if any("\0" in item for item in value):
            raise self.refuse(f'"{key}" holds a NUL character')
        return tuple(value)

    def text(self, entry: Mapping[str, Any], key: str) -> str | None:
        """The string under `key`; None when absent, null or empty."""
        value = entry.get(key)
        if value is not None and not isinstance(value, str):
            raise self.refuse(f'"{key}" must be a string, not {shown(value)}')
        if value and "\0" in value:
            raise self.refuse(f'"{key}" holds a NUL character')
        return value or None

    def number(self, entry: Mapping[str, Any], key: str, default: int) -> int:
        """The integer under `key`; a boolean is none (A22)."""
        value = entry.get(key, default)
        if type(value) is not int:
            raise self.refuse(f'"{key}" must be an integer, not {shown(value)}')
        return value


def unknown_keys(entry: Mapping[str, Any], known: Collection[str]) -> str:
    """What to say of the keys of `entry` that are not `known`; empty when there are none."""
    unknown = [key for key in entry if key not in known]
    if not unknown:
        return ""
    close = get_close_matches(unknown[0], known, n=1) if len(unknown) == 1 else []
    accepted = f"known: {', '.join(sorted(known))}"
    hint = f' (did you mean "{close[0]}"?); {accepted}' if close else f" ({accepted})"
    return f"unknown key{'s' if len(unknown) > 1 else ''} {listed(unknown)}{hint}"
