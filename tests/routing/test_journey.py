"""A request's life (design.md §4)."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.errors import IllegalMove
from infera_cli.routing.journey import MOVES, Journey, State

STATES: tuple[State, ...] = get_args(State)


def travelled(*states: State) -> Journey:
    journey = Journey()
    for state in states:
        journey.move(state)
    return journey


def test_the_table_names_every_state_and_no_other() -> None:
    """Each state has a row, and rows lead to states."""
    assert set(MOVES) == set(STATES)
    assert set().union(*MOVES.values()) <= set(STATES)


@pytest.mark.parametrize("end", ["done", "failed", "gone"])
def test_the_plain_way(end: State) -> None:
    """Received, admitted, routed, sent, answering, and an end."""
    journey = travelled("admitted", "routed", "sent", "answering", end)
    assert journey.ended
    assert not journey.may_retry


def test_a_request_may_go_to_another_worker_before_its_first_byte() -> None:
    """From sent, and from a connection that failed, the way back to routed is open (rulings 2)."""
    journey = travelled("admitted", "routed", "routed", "sent")
    assert journey.may_retry
    journey.move("routed")
    assert journey.state == "routed"


def test_the_first_byte_closes_the_door_on_retries() -> None:
    """From answering nothing leads back to a worker; the attempt raises and changes nothing."""
    journey = travelled("admitted", "routed", "sent", "answering")
    assert not journey.may_retry
    for state in ("routed", "sent", "admitted"):
        with pytest.raises(IllegalMove, match="answering cannot become"):
            journey.move(state)
        assert journey.state == "answering"


@pytest.mark.parametrize("end", ["done", "failed", "gone", "refused"])
def test_an_end_is_the_end(end: State) -> None:
    """Nothing leads out of an end, not even to itself."""
    journey = Journey()
    journey.state = end
    for state in STATES:
        with pytest.raises(IllegalMove):
            journey.move(state)
    assert journey.state == end


@pytest.mark.parametrize("state", ["received", "admitted", "routed", "sent", "answering"])
def test_a_client_may_leave_at_any_time(state: State) -> None:
    """Every state that is not an end leads to gone."""
    journey = Journey()
    journey.state = state
    journey.move("gone")
    assert journey.ended


def test_nobody_answers_before_something_was_sent() -> None:
    """An answer has a worker behind it; refusals go through their own end."""
    for states in ((), ("admitted",), ("admitted", "routed")):
        with pytest.raises(IllegalMove):
            travelled(*states).move("answering")


@given(st.lists(st.sampled_from(STATES), max_size=30))
def test_no_history_sends_after_an_answer(script: list[State]) -> None:
    """However moves are tried, what was accepted is a path of the table with at most one answering."""
    journey, path = Journey(), ["received"]
    for state in script:
        try:
            journey.move(state)
        except IllegalMove:
            assert journey.state == path[-1]
        else:
            path.append(state)
    assert all(after in MOVES[before] for before, after in pairwise(path))
    assert path.count("answering") <= 1
    assert "routed" not in path[path.index("answering"):] if "answering" in path else True
