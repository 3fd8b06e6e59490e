"""How a value of a setting is written, and which values make sense.

A kind answers four questions: what does this text mean (`read`, for flags and the environment), what does
this TOML value mean (`take`), is the value in range (`check`), and how is it shown (`show`). What cannot be
read is a `ReadError`, what makes no sense a `RangeError`; they end the program differently (rulings 5).
(Source: replica-router §1.2 "Settings validation"; B41 for `nan` and `inf`.)
"""

# ruff: noqa: D102 - an override means what Kind says it means
from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any


class ReadError(ValueError):
    """The text or TOML value is not of this kind."""


class RangeError(ValueError):
    """The value is of this kind, but no sensible one."""


class LaterError(ValueError):
    """A known value that this version does not support (rulings 22)."""


class Kind:
    """Plain text, and the base of all other kinds.

    `metavar` stands for the value in help pages; `choices()` are what completion offers.
    """

    metavar = "TEXT"
    many = False

    def choices(self) -> Sequence[str]:
        """Values to offer, empty when any will do."""
        return ()

    def read(self, text: str) -> Any:
        """The value that `text` stands for. Raises ReadError."""
        return text

    def take(self, value: Any) -> Any:
        """The value that a TOML value stands for. Raises ReadError."""
        if not isinstance(value, str):
            raise ReadError("must be text in quotes")
        return self.read(value)

    def check(self, value: Any) -> None:
        """Raises RangeError or LaterError."""

    def show(self, value: Any) -> str:
        """`value` as a person would type it."""
        return str(value)


class Text(Kind):
    """Text; an empty one is refused when `filled`."""

    def __init__(self, metavar: str = "TEXT", *, filled: bool = True) -> None:
        self.metavar = metavar
        self._filled = filled

    def check(self, value: str) -> None:
        if self._filled and not value.strip():
            raise RangeError("must not be empty")


class Integer(Kind):
    """A whole number of at least `low` and at most `high`."""

    def __init__(self, metavar: str = "N", *, low: int = 0, high: int | None = None) -> None:
        self.metavar = metavar
        self._low, self._high = low, high

    def read(self, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise ReadError("must be a whole number") from None

    def take(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ReadError("must be a whole number, without quotes")
        return value

    def check(self, value: int) -> None:
        if value < self._low or (self._high is not None and value > self._high):
            raise RangeError(f"must be {self._low} or more" if self._high is None
                             else f"must be between {self._low} and {self._high}")


class Number(Kind):
    """A finite number of at least 0."""

    def __init__(self, metavar: str = "X") -> None:
        self.metavar = metavar

    def read(self, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise ReadError("must be a number") from None

    def take(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ReadError("must be a number, without quotes")
        return float(value)

    def check(self, value: float) -> None:
        if not math.isfinite(value) or value < 0:
            raise RangeError("must be 0 or more")

    def show(self, value: float) -> str:
        return f"{value:g}"


_UNITS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(.*?[\d.])\s*(ms|s|m|h)", re.ASCII)


class Seconds(Kind):
    """A finite time span in seconds; `90`, `1.5`, `250ms`, `10m`, `1h`. Zero only where it means "off"."""

    metavar = "SECONDS"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def read(self, text: str) -> float:
        match = _DURATION.fullmatch(text.strip())
        number, unit = match.groups() if match else (text, "")
        try:
            return float(number) * _UNITS[unit]
        except ValueError:
            raise ReadError("must be a number of seconds, e.g. 30, 1.5 or 10m") from None

    def take(self, value: Any) -> float:
        if isinstance(value, str):
            return self.read(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ReadError("must be a number of seconds, e.g. 30, 1.5 or \"10m\"")
        return float(value)

    def check(self, value: float) -> None:
        if not math.isfinite(value):
            raise RangeError("must be a finite number of seconds")
        if value < 0 or (value == 0 and not self._zero):
            raise RangeError("must be 0 or more" if self._zero else "must be more than 0")

    def show(self, value: float) -> str:
        return f"{value:g}"


_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"(\d+)\s*([a-z]*)", re.ASCII | re.IGNORECASE)


class Size(Kind):
    """A number of bytes above zero; `65536`, `64KiB`, `10MB`."""

    metavar = "SIZE"

    def read(self, text: str) -> int:
        match = _SIZE.fullmatch(text.strip())
        if match is None or match[2].lower() not in _SIZES:
            raise ReadError("must be a size such as 65536, 64KiB or 10MB")
        return int(match[1]) * _SIZES[match[2].lower()]

    def take(self, value: Any) -> int:
        if isinstance(value, str):
            return self.read(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ReadError("must be a size such as 65536 or \"64MiB\"")
        return value

    def check(self, value: int) -> None:
        if value <= 0:
            raise RangeError("must be more than 0")

    def show(self, value: int) -> str:
        for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if value and value % size == 0:
                return f"{value // size}{unit}"
        return str(value)


class Choice(Kind):
    """One of `names` (a tuple, or a function that gives it); `later` are known but not in this version."""

    metavar = "NAME"

    def __init__(self, names: Sequence[str] | Callable[[], Sequence[str]], later: Sequence[str] = ()) -> None:
        self._names = names
        self._later = tuple(later)

    def choices(self) -> Sequence[str]:
        return tuple(self._names() if callable(self._names) else self._names)

    def read(self, text: str) -> str:
        if text not in self.choices() and text not in self._later:
            raise ReadError(f"must be one of {', '.join(self.choices())}")
        return text

    def check(self, value: str) -> None:
        if value in self._later:
            raise LaterError(f"{value!r} is not in this version; choose one of {', '.join(self.choices())}")


_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class Switch(Kind):
    """On or off. `both` says that a `--no-…` flag exists too."""

    metavar = ""

    def __init__(self, *, both: bool = False) -> None:
        self.both = both

    def read(self, text: str) -> bool:
        if text.lower() not in _YES + _NO:
            raise ReadError("must be one of " + ", ".join((*_YES, *_NO)))
        return text.lower() in _YES

    def take(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ReadError("must be true or false, without quotes")
        return value

    def show(self, value: bool) -> str:
        return "on" if value else "off"


class Many(Kind):
    """A list: a flag given again and again, words in the environment, an array in TOML."""

    many = True

    def __init__(self, each: Kind) -> None:
        self._each = each
        self.metavar = each.metavar

    def choices(self) -> Sequence[str]:
        return self._each.choices()

    def read(self, text: str) -> tuple[Any, ...]:
        if not text.strip():
            raise ReadError("must hold at least one value")
        return tuple(self._each.read(word) for word in text.split())

    def read_all(self, texts: Sequence[str]) -> tuple[Any, ...]:
        """The values of a repeated flag. Raises ReadError."""
        return tuple(self._each.read(text) for text in texts)

    def take(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise ReadError("must be a list in square brackets")
        return tuple(self._each.take(item) for item in value)

    def check(self, value: tuple[Any, ...]) -> None:
        for item in value:
            self._each.check(item)

    def show(self, value: tuple[Any, ...]) -> str:
        return " ".join(self._each.show(item) for item in value) or "none"
