"""How values of settings are written and judged."""

from __future__ import annotations

import math
from typing import Any

import pytest

from infera_cli.config.kinds import (
    Choice,
    Integer,
    Kind,
    LaterError,
    Many,
    RangeError,
    ReadError,
    Seconds,
    Size,
    Switch,
    Text,
)

READ: list[tuple[Kind, str, Any]] = [
    (Text(), "as it is", "as it is"),
    (Integer(), "8", 8),
    (Integer(), "-1", -1),
    (Seconds(), "90", 90.0),
    (Seconds(), "1.5", 1.5),
    (Seconds(), "250ms", 0.25),
    (Seconds(), "30s", 30.0),
    (Seconds(), "10m", 600.0),
    (Seconds(), "1h", 3600.0),
    (Seconds(), "1e3", 1000.0),
    (Size(), "65536", 65536),
    (Size(), "64KiB", 65536),
    (Size(), "64MiB", 64 * 2**20),
    (Size(), "10MB", 10_000_000),
    (Size(), "1 gib", 2**30),
    (Choice(("a", "b"), later=("c",)), "b", "b"),
    (Choice(("a", "b"), later=("c",)), "c", "c"),
    (Switch(), "1", True),
    (Switch(), "Yes", True),
    (Switch(), "off", False),
    (Many(Integer()), "1 2", (1, 2)),
]


@pytest.mark.parametrize(("kind", "text", "value"), READ)
def test_text_is_read_as_the_value_it_stands_for(kind: Kind, text: str, value: Any) -> None:
    """Flags and variables are text, and every kind knows what its text means."""
    assert kind.read(text) == value


UNREADABLE: list[tuple[Kind, str, str]] = [
    (Integer(), "eight", "must be a whole number"),
    (Integer(), "8.0", "must be a whole number"),
    (Integer(), "", "must be a whole number"),
    (Seconds(), "soon", "must be a number of seconds, e.g. 30, 1.5 or 10m"),
    (Seconds(), "10d", "must be a number of seconds, e.g. 30, 1.5 or 10m"),
    (Seconds(), "m", "must be a number of seconds, e.g. 30, 1.5 or 10m"),
    (Size(), "64 bananas", "must be a size such as 65536, 64KiB or 10MB"),
    (Size(), "-1", "must be a size such as 65536, 64KiB or 10MB"),
    (Size(), "1.5MiB", "must be a size such as 65536, 64KiB or 10MB"),
    (Choice(("a", "b")), "z", "must be one of a, b"),
    (Switch(), "maybe", "must be one of 1, true, yes, on, 0, false, no, off"),
    (Many(Integer()), "1 x", "must be a whole number"),
]


@pytest.mark.parametrize(("kind", "text", "reason"), UNREADABLE)
def test_text_of_another_kind_is_refused(kind: Kind, text: str, reason: str) -> None:
    """What cannot be read is a ReadError that says what is expected."""
    with pytest.raises(ReadError) as refusal:
        kind.read(text)
    assert str(refusal.value) == reason


TAKEN: list[tuple[Kind, Any, Any]] = [
    (Text(), "x", "x"),
    (Integer(), 8, 8),
    (Seconds(), 5, 5.0),
    (Seconds(), 0.5, 0.5),
    (Seconds(), "10m", 600.0),
    (Size(), 100, 100),
    (Size(), "1KiB", 1024),
    (Switch(), True, True),
    (Many(Text()), ["a", "b"], ("a", "b")),
]


@pytest.mark.parametrize(("kind", "value", "expected"), TAKEN)
def test_toml_values_keep_their_type(kind: Kind, value: Any, expected: Any) -> None:
    """A settings file says numbers as numbers, switches as booleans and lists as arrays."""
    taken = kind.take(value)
    assert taken == expected
    assert type(taken) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Text(), 8), (Integer(), "8"), (Integer(), True), (Integer(), 8.0), (Seconds(), True),
        (Seconds(), []), (Size(), 1.5), (Size(), False), (Switch(), "true"), (Switch(), 1),
        (Many(Text()), "a"), (Many(Text()), [1]), (Choice(("a",)), 1),
    ],
)
def test_r187_toml_values_of_another_type_are_refused(kind: Kind, value: Any) -> None:
    """A number in quotes, a boolean for a number or a scalar for a list is never guessed at."""
    with pytest.raises(ReadError):
        kind.take(value)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0])
def test_b41_only_finite_times_of_zero_or_more_make_sense(value: float, zero: bool) -> None:
    """`nan`, `inf` and negative times are read by a plain float parser and refused by ours."""
    with pytest.raises(RangeError):
        Seconds(zero=zero).check(value)


def test_zero_seconds_only_where_zero_means_off() -> None:
    """A limit that can be switched off takes 0, any other does not."""
    Seconds(zero=True).check(0.0)
    with pytest.raises(RangeError, match="must be more than 0"):
        Seconds().check(0.0)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (Integer(high=65535), 70000, "must be between 0 and 65535"),
        (Integer(low=1), 0, "must be 1 or more"),
        (Text(), " ", "must not be empty"),
        (Size(), 0, "must be more than 0"),
        (Many(Text()), ("a", ""), "must not be empty"),
    ],
)
def test_values_out_of_range_are_refused(kind: Kind, value: Any, reason: str) -> None:
    """What was read but makes no sense is a RangeError."""
    with pytest.raises(RangeError, match=reason):
        kind.check(value)


def test_choices_of_later_versions_are_known_and_refused() -> None:
    """A documented value that is not built yet is told apart from a mistake."""
    kind = Choice(("a", "b"), later=("c",))
    with pytest.raises(LaterError, match="'c' is not in this version; choose one of a, b"):
        kind.check("c")
    assert kind.choices() == ("a", "b")


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        (Size(), 64 * 2**20, "64MiB"), (Size(), 65536, "64KiB"), (Size(), 1000, "1000"),
        (Size(), 2**31, "2GiB"),
        (Seconds(), 5.0, "5"), (Seconds(), 0.25, "0.25"), (Switch(), True, "on"), (Switch(), False, "off"),
        (Many(Text()), ("a", "b"), "a b"), (Many(Text()), (), "none"), (Integer(), 7, "7"),
    ],
)
def test_values_are_shown_as_a_person_would_type_them(kind: Kind, value: Any, shown: str) -> None:
    """`config show` and the help pages print units, not raw numbers."""
    assert kind.show(value) == shown
