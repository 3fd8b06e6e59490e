"""Hit rates, and the switch between lru and prefix-aware (replica-router §2.6)."""

from __future__ import annotations

from infera_cli.routing.adaptive import WINDOW, Switch
from infera_cli.routing.window import Window


def fed(hits: int, misses: int, at: float = 0.0) -> Switch:
    switch = Switch()
    for _ in range(hits):
        switch.note(True, at)
    for _ in range(misses):
        switch.note(False, at)
    return switch


def test_it_starts_as_lru() -> None:
    """Nothing measured is lru."""
    assert Switch().on(0.0) is False


def test_it_switches_on_strictly_above_forty_percent() -> None:
    """40.0 % exactly does not switch on; one more hit does."""
    assert fed(40, 60).on(0.0) is False
    assert fed(41, 59).on(0.0) is True


def test_twenty_samples_are_the_fewest() -> None:
    """19 hits of 19 are too few; the 20th request decides."""
    switch = fed(19, 0)
    assert switch.on(0.0) is False
    switch.note(True, 0.0)
    assert switch.on(0.0) is True


def test_it_switches_off_below_thirty_percent() -> None:
    """At 30 % it stays as it was, below it is lru again."""
    switch = fed(41, 59)
    assert switch.on(0.0)
    for _ in range(36):
        switch.note(False, 61.0)
    assert switch.on(61.0) is True     # 41 of 136: 30.1 %
    switch.note(False, 62.0)
    assert switch.on(62.0) is False    # 41 of 137: 29.9 %


def test_between_thirty_and_forty_percent_nothing_changes() -> None:
    """35 % neither switches on nor off."""
    assert fed(35, 65).on(0.0) is False
    switch = fed(41, 59)
    assert switch.on(0.0)
    for _ in range(17):
        switch.note(False, 61.0)
    assert switch.on(61.0) is True


def test_two_switches_are_a_minute_apart() -> None:
    """A rate that falls at once is believed after 60 s."""
    switch = fed(41, 59)
    assert switch.on(10.0)
    for _ in range(100):
        switch.note(False, 20.0)
    assert switch.on(69.9) is True
    assert switch.on(70.0) is False


def test_an_empty_window_is_lru() -> None:
    """After five minutes without requests it begins anew."""
    switch = fed(41, 59)
    assert switch.on(0.0)
    assert switch.on(299.9) is True
    assert switch.on(300.0) is False


def test_a_window_is_three_hundred_seconds_long() -> None:
    """Samples of exactly 300 s ago are gone; an empty window has no rate."""
    window = Window(WINDOW)
    window.note(True, 0.0)
    window.note(False, 100.0)
    assert window.rate(299.0) == 0.5
    assert window.rate(300.0) == 0.0
    assert window.rate(400.0) is None
    assert (window.count(400.0), window.hits(400.0)) == (0, 0)
