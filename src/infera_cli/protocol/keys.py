"""Reads one block of a configuration file key by key; whatever is wrong is named by its dotted path.

(Source: replica-router §2.3: unknown keys anywhere are an error, since a typo must not silently disable something.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Any

from infera_cli.errors import ConfigError
from infera_cli.protocol.place import Place, shown, unknown_keys


class Keys:
    """The keys of one block. `path` is e.g. `nodes[2].hardware_profile`, "" for the top.

    Raises ConfigError when `value` is no block, or has a key that is not `known`.
    """

    def __init__(self, file: Place, path: str, value: object, known: Collection[str]) -> None:
        self._file = file
        self._path = path
        if not isinstance(value, Mapping):
            raise file.refuse(f"{path or 'the file'} must be a block of keys ({', '.join(known)}), not {shown(value)}")
        self._values: Mapping[str, Any] = value
        if unknown := unknown_keys(value, known):
            raise file.refuse(f"{path}: {unknown}" if path else unknown)

    def path(self, key: str) -> str:
        """The dotted path of a key of this block."""
        return f"{self._path}.{key}" if self._path else key

    def refuse(self, key: str, text: str) -> ConfigError:
        """The error about one key."""
        return self._file.refuse(f"{self.path(key)} {text}")

    def has(self, key: str) -> bool:
        """Whether the key is there, with a value."""
        return self._values.get(key) is not None

    def raw(self, key: str) -> Any:
        """The value as it stands; None when absent."""
        return self._values.get(key)

    def block(self, key: str, known: Collection[str]) -> Keys:
        """The block below `key`; an absent one has no keys."""
        value = self._values.get(key)
        return Keys(self._file, self.path(key), {} if value is None else value, known)

    def integer(self, key: str, default: int, low: int, high: int | None = None) -> int:
        """A whole number in range; a boolean is none."""
        value = self._values.get(key)
        if value is None:
            return default
        if type(value) is not int or value < low or (high is not None and value > high):
            span = f"of at least {low}" if high is None else f"from {low} to {high}"
            raise self.refuse(key, f"must be a whole number {span}, not {shown(value)}")
        return value

    def number(self, key: str, default: float, low: float, high: float | None = None, *, above: bool = False) -> float:
        """A finite number in range, above `low` where `above`; a boolean is none."""
        value = self._values.get(key)
        if value is None:
            return default
        fine = type(value) in {int, float} and isfinite(value) and value >= low and not (above and value == low)
        if not fine or (high is not None and value > high):
            span = f"from {low:g} to {high:g}" if high is not None else f"{'above' if above else 'of at least'} {low:g}"
            raise self.refuse(key, f"must be a number {span}, not {_told(value)}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(key, f"must be true or false, not {shown(value)}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Text that is not empty; required without a default."""
        value = self._values.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise self.refuse(key, "is missing")
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise self.refuse(key, f"must be text, not {shown(value) if value != '' else 'empty'}")
        return value

    def choice(self, key: str, names: Sequence[str], default: str | None = None) -> str:
        """One of `names`; required without a default."""
        value = self._values.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise self.refuse(key, f"is missing; it is one of {', '.join(names)}")
        if value not in names:
            raise self.refuse(key, f"must be one of {', '.join(names)}, not {shown(value)}")
        return str(value)

    def texts(self, key: str, *, needed: bool = False) -> tuple[str, ...]:
        """A list of unique texts; with `needed` it has at least one."""
        value = self._values.get(key)
        if value is None and not needed:
            return ()
        if value is None:
            raise self.refuse(key, "is missing; it is a list with at least one entry")
        if not isinstance(value, list) or (needed and not value) or not all(_is_text(item) for item in value):
            raise self.refuse(key, f"must be a list of texts{', not empty' if needed else ''}, not {_told(value)}")
        if len(set(value)) != len(value):
            twice = next(item for item in value if value.count(item) > 1)
            raise self.refuse(key, f"names {shown(twice)} twice")
        return tuple(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and "\0" not in value


def _told(value: object) -> str:
    return "an empty list" if value == [] else str(value) if isinstance(value, float) else shown(value)
