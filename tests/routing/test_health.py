"""Readiness (replica-router §1.7) and breaker (infera-wire §4.9) as tables."""

from __future__ import annotations

from math import inf
from typing import cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.errors import IllegalMove
from infera_cli.routing.health import (
    READINESS,
    Breaker,
    BreakerRules,
    Readiness,
    Ready,
    Score,
    Sign,
)

FAULT, SUCCESS, NEUTRAL, UNREACHABLE = Score.FAULT, Score.SUCCESS, Score.NEUTRAL, Score.UNREACHABLE


# ── readiness ────────────────────────────────────────────────────────────────────────────────────────
def test_every_sign_has_a_row_in_every_state() -> None:
    """A probe or a request can end at any time, so no state is without an answer."""
    assert set(READINESS) == {(state, sign) for state in get_args(Ready) for sign in get_args(Sign)}


def test_a19_two_failed_probes_in_a_row_take_a_worker_out() -> None:
    """The first failed probe is a strike, the second takes the worker out."""
    readiness = Readiness(ready=True)
    assert readiness.move("probe_failed") is False
    assert (readiness.ready, readiness.failures) == (True, 1)
    assert readiness.move("probe_failed") is True
    assert (readiness.ready, readiness.failures) == (False, 2)


def test_a19_one_success_restores_and_zeroes_the_count() -> None:
    """A success brings a worker back at once, and two failures in a row count anew from there."""
    readiness = Readiness(ready=True)
    for sign in ("probe_failed", "probe_failed"):
        readiness.move(sign)
    assert readiness.move("probe_ok") is True
    assert (readiness.ready, readiness.failures) == (True, 0)
    readiness.move("probe_failed")
    assert readiness.ready


def test_failures_that_are_not_in_a_row_take_nobody_out() -> None:
    """A success between two failed probes takes the strike away."""
    readiness = Readiness(ready=True)
    for sign in ("probe_failed", "probe_ok", "probe_failed"):
        readiness.move(sign)
    assert readiness.ready


def test_a_worker_that_cannot_be_reached_is_out_at_once() -> None:
    """A request that could not reach it needs no second strike."""
    readiness = Readiness(ready=True)
    assert readiness.move("unreachable") is True
    assert not readiness.ready
    assert readiness.move("probe_ok") is True


def test_a_launched_worker_starts_not_ready() -> None:
    """A worker that is loading becomes ready by its first successful probe, whatever failed before."""
    readiness = Readiness(ready=False)
    for _ in range(9):
        assert readiness.move("probe_failed") is False
    assert not readiness.ready
    assert readiness.move("probe_ok") is True
    assert readiness.ready


def test_arriving_bytes_take_a_strike_away_but_bring_nobody_back() -> None:
    """Moving streams keep a worker in; they bring none back that takes no connection (rulings 12)."""
    readiness = Readiness(ready=True)
    for sign in ("probe_failed", "alive", "probe_failed", "alive"):
        readiness.move(sign)
    assert (readiness.ready, readiness.failures) == (True, 0)
    readiness.move("unreachable")
    assert readiness.move("alive") is False
    assert not readiness.ready


def test_an_unknown_sign_raises_and_changes_nothing() -> None:
    """What is not in the table is illegal."""
    readiness = Readiness(ready=True)
    readiness.move("probe_failed")
    with pytest.raises(IllegalMove):
        readiness.move(cast("Sign", "nonsense"))
    assert (readiness.state, readiness.failures) == ("struck", 1)


# ── breaker ──────────────────────────────────────────────────────────────────────────────────────────
def tripped(now: float = 0.0, rules: BreakerRules | None = None) -> Breaker:
    breaker = Breaker(rules or BreakerRules())
    for _ in range(3):
        breaker.record(FAULT, now)
    return breaker


def half_open(now: float = 5.0) -> Breaker:
    breaker = tripped(now - 5.0)
    breaker.look(now)
    return breaker


def test_three_faults_in_a_row_open_it_for_five_seconds() -> None:
    """The third consecutive fault excludes the worker for the cooldown."""
    breaker = Breaker(BreakerRules())
    breaker.record(FAULT, 0.0)
    breaker.record(FAULT, 0.0)
    assert (breaker.state, breaker.allows(0.0)) == ("closed", True)
    breaker.record(FAULT, 1.0)
    assert (breaker.state, breaker.trips) == ("open", 1)
    assert [breaker.allows(now) for now in (1.0, 5.999, 6.0)] == [False, False, True]


def test_unreachable_is_a_fault() -> None:
    """A failed connection counts like a 5xx."""
    breaker = Breaker(BreakerRules())
    for _ in range(3):
        breaker.record(UNREACHABLE, 0.0)
    assert breaker.state == "open"


def test_s35_a_success_resets_the_count() -> None:
    """Faults count only in a row: three in a lifetime trip nothing."""
    breaker = Breaker(BreakerRules())
    for score in (FAULT, FAULT, SUCCESS, FAULT, FAULT):
        breaker.record(score, 0.0)
    assert breaker.state == "closed"


def test_s34_alternating_faults_and_neutral_answers_trip() -> None:
    """A 4xx is no recovery: it leaves the count of faults as it is."""
    breaker = Breaker(BreakerRules())
    for score in (FAULT, NEUTRAL, FAULT, NEUTRAL, FAULT):
        breaker.record(score, 0.0)
    assert breaker.state == "open"


def test_s32_neutral_answers_alone_never_trip() -> None:
    """4xx answers leave the breaker alone."""
    breaker = Breaker(BreakerRules())
    for _ in range(100):
        breaker.record(NEUTRAL, 0.0)
    assert breaker.calm
    assert breaker.trips == 0


def test_half_open_is_entered_at_the_look_after_the_cooldown() -> None:
    """Before its time a look changes nothing, after it the breaker is half open."""
    breaker = tripped()
    breaker.look(4.999)
    assert breaker.state == "open"
    breaker.look(5.0)
    assert (breaker.state, breaker.allows(5.0), breaker.changes_at) == ("half_open", True, inf)


def test_one_trial_at_a_time() -> None:
    """A claimed trial keeps everybody else out until it is scored."""
    breaker = half_open()
    breaker.claim(5.0)
    assert not breaker.allows(5.1)
    with pytest.raises(IllegalMove):
        breaker.claim(5.1)
    assert (breaker.state, breaker.changes_at) == ("half_open", 65.0)


def test_a_trial_never_scored_is_given_up_after_a_minute() -> None:
    """The claim expires after 60 seconds, then the next request may try."""
    breaker = half_open()
    breaker.claim(5.0)
    assert [breaker.allows(now) for now in (64.9, 65.0)] == [False, True]
    breaker.look(65.0)
    breaker.claim(65.0)
    assert breaker.trying


def test_s34_a_neutral_trial_frees_the_slot_and_no_more() -> None:
    """A 4xx to the trial leaves the breaker half open, for the next one to try."""
    breaker = half_open()
    breaker.claim(5.0)
    breaker.record(NEUTRAL, 6.0)
    assert (breaker.state, breaker.allows(6.0), breaker.trips) == ("half_open", True, 1)


def test_a_successful_trial_closes_it_and_resets_all() -> None:
    """After a success the worker starts from nothing: no faults, the first cooldown."""
    breaker = half_open()
    breaker.record(FAULT, 5.0)
    breaker.look(15.0)
    breaker.record(SUCCESS, 16.0)
    assert (breaker.state, breaker.calm) == ("closed", True)
    for _ in range(3):
        breaker.record(FAULT, 20.0)
    assert breaker.changes_at == 25.0


def test_failed_trials_double_the_cooldown_up_to_a_minute() -> None:
    """5, 10, 20, 40, then 60 seconds for as long as trials fail."""
    breaker, now, cooldowns = tripped(), 0.0, []
    for _ in range(6):
        cooldowns.append(breaker.changes_at - now)
        now = breaker.changes_at
        breaker.look(now)
        breaker.claim(now)
        breaker.record(FAULT, now)
    assert cooldowns == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]


def test_s43_trips_count_entries_into_open_only() -> None:
    """Faults while open count nothing; a failed trial is one more entry."""
    breaker = tripped()
    for _ in range(10):
        breaker.record(FAULT, 1.0)
    assert (breaker.trips, breaker.changes_at) == (1, 5.0)
    breaker.look(5.0)
    breaker.claim(5.0)
    breaker.record(FAULT, 6.0)
    assert breaker.trips == 2


def test_a_success_while_open_closes_it() -> None:
    """Any recorded success closes, also of a request that was sent before the trip."""
    breaker = tripped()
    breaker.record(SUCCESS, 1.0)
    assert (breaker.state, breaker.allows(1.0), breaker.changes_at) == ("closed", True, inf)


def test_threshold_zero_switches_it_off() -> None:
    """With a threshold of 0 no number of faults opens it."""
    breaker = Breaker(BreakerRules(threshold=0))
    for _ in range(1000):
        breaker.record(FAULT, 0.0)
    assert (breaker.state, breaker.trips) == ("closed", 0)


@pytest.mark.parametrize("state", ["closed", "open"])
def test_a_trial_of_a_breaker_that_is_not_half_open_is_illegal(state: str) -> None:
    """An illegal claim raises and changes nothing."""
    breaker = Breaker(BreakerRules()) if state == "closed" else tripped()
    before = breaker.stand
    with pytest.raises(IllegalMove):
        breaker.claim(100.0)
    assert breaker.stand == before


@pytest.mark.parametrize(
    ("breaker", "now"), [(tripped(), 4.9), (Breaker(BreakerRules()), 9.0), (half_open(), 9.0)]
)
def test_a_cooldown_ends_once_and_in_its_time(breaker: Breaker, now: float) -> None:
    """Half opening too early, or when not open, raises and changes nothing."""
    before = breaker.stand
    with pytest.raises(IllegalMove):
        breaker.elapse(now)
    assert breaker.stand == before


@given(st.lists(st.tuples(st.sampled_from([*Score, "request"]), st.floats(0, 30)), max_size=60))
def test_whatever_happens_a_breaker_is_never_shut_for_longer_than_a_minute(
    script: list[tuple[Score | str, float]],
) -> None:
    """In every history: one trial at most is out, trips only rise, and 60 s later a request may go."""
    breaker, now, trips = Breaker(BreakerRules()), 0.0, 0
    for what, wait in script:
        now += wait
        breaker.look(now)
        if isinstance(what, Score):
            breaker.record(what, now)
        elif breaker.state == "half_open" and breaker.allows(now):
            breaker.claim(now)
            assert not breaker.allows(now)
        assert breaker.allows(now + 60.0)
        assert trips <= breaker.trips <= trips + 1
        assert (breaker.state == "closed") <= (breaker.changes_at == inf)
        trips = breaker.trips
