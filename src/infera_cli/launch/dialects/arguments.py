"""Reads single flags out of an engine's command line, which is otherwise none of our business.

Both `--flag value` and `--flag=value` are read, underscores stand for dashes, and the last one wins, as argparse
has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_DIGITS = 18


def value_of(args: Sequence[str], names: Sequence[str]) -> str | None:
    """The value of the last of these flags; None where none is given, or it has no value."""
    found = None
    for place, value in _places(args, names):
        found = value if value is not None else _word(args, place + 1)
    return found


def is_given(args: Sequence[str], names: Sequence[str]) -> bool:
    """Whether one of these flags is there, with or without a value."""
    return any(True for _ in _places(args, names))


def number_of(args: Sequence[str], names: Sequence[str]) -> int | None:
    """The value as a whole number; None where it is none."""
    value = value_of(args, names)
    return whole(value) if value is not None else None


def whole(text: str) -> int | None:
    """Digits as a number, None for anything else. Of more than 18 digits it is only known that they are too many."""
    if not text.isdecimal():
        return None
    return int(text) if len(text) <= _DIGITS else 10**_DIGITS


def _places(args: Sequence[str], names: Sequence[str]) -> Iterator[tuple[int, str | None]]:
    for place, word in enumerate(args):
        if word.startswith("-"):
            flag, equals, value = word.partition("=")
            if flag.replace("_", "-") in names:
                yield place, value if equals else None


def _word(args: Sequence[str], place: int) -> str | None:
    return args[place] if place < len(args) and not args[place].startswith("--") else None
