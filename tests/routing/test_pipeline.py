"""Pins, slack and rotation (replica-router §1.10), and what every policy shares."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.errors import NoRoutableWorker
from infera_cli.routing.catalogue import POLICIES
from infera_cli.routing.types import Candidate
from tests.routing.worlds import World

EVERY_POLICY = list(POLICIES)


# ── rotation ─────────────────────────────────────────────────────────────────────────────────────────
def test_the_worked_rotation() -> None:
    """Idle workers serve in turn; a hit leaves the counter alone, so the next session goes on from there."""
    world = World([0, 0, 0])
    assert [world.visit(s) for s in ("s1", "s2", "s3", "s4")] == ["w0", "w1", "w2", "w0"]
    decision, lease = world.send("s2")
    lease.settle(0.0)
    assert (decision.worker.id, decision.affinity, decision.turn) == ("w1", "hit", None)
    assert world.visit("s5") == "w1"


@given(
    loads=st.lists(st.integers(0, 3), min_size=1, max_size=9),
    turn=st.integers(0, 20),
    out=st.sets(st.integers(0, 8)),
)
def test_least_loaded_ties_go_to_the_first_in_rotation(loads: list[int], turn: int, out: set[int]) -> None:
    """Chosen is the smallest (place − turn) mod size among the least loaded; size counts all workers."""
    places = [p for p in range(len(loads)) if p not in out]
    if not places:
        places, out = [0], set(range(1, len(loads)))
    world = World(loads, policy="least-loaded", out=list(out))
    world.turn = turn
    least = min(loads[p] for p in places)
    right = min((p for p in places if loads[p] == least), key=lambda p: (p - turn) % len(loads))
    decision = world.decide()
    assert decision.worker is world.workers[right]
    assert decision.turn == (right + 1) % len(loads)


@given(n=st.integers(1, 9), turn=st.integers(0, 20), out=st.sets(st.integers(0, 8)))
def test_round_robin_takes_the_next_routable_place(n: int, turn: int, out: set[int]) -> None:
    """Round-robin ignores load, and skips places that are not routable."""
    places = [p for p in range(n) if p not in out] or [0]
    unroutable = [p for p in range(n) if p not in places]
    world = World([9 - p for p in range(n)], policy="round-robin", out=unroutable)
    world.turn = turn
    assert world.decide().worker is world.workers[min(places, key=lambda p: (p - turn) % n)]


# ── affinity ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("loads", "slack", "served", "affinity"),
    [
        ([8, 0], 8, "w0", "hit"),           # eight more than the least is allowed
        ([9, 0], 8, "w1", "overloaded"),    # one more than that is not
        ([50, 45], 8, "w0", "hit"),         # the difference counts, not the load
        ([54, 45], 8, "w1", "overloaded"),
        ([1, 0], 0.5, "w1", "overloaded"),
    ],
)  # fmt: skip
def test_r067_slack_is_measured_against_the_least_loaded(
    loads: list[int], slack: float, served: str, affinity: str
) -> None:
    """A pinned worker keeps its session up to `slack` open requests above the least loaded."""
    world = World(loads, slack=slack)
    world.pins.pin("s", "w0", 0.0)
    decision = world.decide("s")
    assert (decision.worker.id, decision.affinity, decision.why) == (served, affinity, f"session:{affinity}")


def test_an_overloaded_pin_moves() -> None:
    """A session that left its worker is pinned to the new one, and the rotation goes on from there."""
    world = World([9, 0])
    world.pins.pin("s", "w0", 0.0)
    world.send("s")
    assert world.pins.find("s", 0.0) == "w1"
    assert world.turn == 0


def test_b32_slack_zero_means_no_affinity() -> None:
    """With slack 0 a pin is never consulted and none is made, also while loads are equal (R067 d)."""
    world = World([0, 0], slack=0)
    world.pins.pin("s", "w0", 0.0)
    served = Counter(world.visit("s") for _ in range(20))
    assert served == {"w0": 10, "w1": 10}
    decision = world.decide("s")
    assert (decision.affinity, decision.pin, decision.why) == ("off", False, "session:off")
    world.decide("t")
    assert len(world.pins) == 1


def test_a_session_without_a_live_pin_goes_to_the_least_loaded() -> None:
    """Unknown and expired pins alike."""
    world = World([1, 0, 1], ttl=10.0)
    world.pins.pin("old", "w0", 0.0)
    world.now = 10.5
    for session in ("old", "new"):
        decision = world.decide(session)
        assert (decision.worker.id, decision.affinity, decision.pin) == ("w1", "none", True)


def test_a_request_without_a_session_is_pinned_nowhere() -> None:
    """No session: the policy's own choice, no pin."""
    decision = World([1, 0]).decide(None)
    assert (decision.worker.id, decision.affinity, decision.pin) == ("w1", "none", False)


def test_r065_a_session_falls_back_when_its_worker_is_not_routable() -> None:
    """The pin stays until the session calls again, then it is moved, and the new worker keeps it."""
    world = World([0, 0, 0], out=[0])
    world.pins.pin("s1", "w0", 0.0)
    first = world.decide("s1")
    assert (first.worker.id, first.affinity) == ("w1", "gone")
    assert world.pins.find("s1", 0.0) == "w0", "a decision alone writes nothing"
    assert {world.visit("s1") for _ in range(11)} == {"w1"}


def test_r068_a_session_that_failed_over_stays_where_it_was_served() -> None:
    """After a retry the pin names the second worker, whichever attempt ends last."""
    world = World([0, 0])
    first, lease = world.send("s1")
    second, other = world.send("s1", tried=[0])
    other.settle(0.0)
    lease.settle(0.0)
    assert (first.worker.id, second.worker.id) == ("w0", "w1")
    assert [world.visit("s1") for _ in range(5)] == ["w1"] * 5


def test_r073_nothing_re_picks_after_affinity() -> None:
    """A pin within the slack is followed every time, though others are idle."""
    world = World([2, 0, 0])
    world.pins.pin("s", "w0", 0.0)
    assert {world.visit("s") for _ in range(30)} == {"w0"}


def test_r064_a_new_worker_moves_no_session() -> None:
    """300 sessions pinned to three workers stay where they are when a fourth comes."""
    before = World([0, 0, 0])
    homes = {f"s{n}": before.visit(f"s{n}") for n in range(300)}
    after = World([0, 0, 0, 0])
    after.pins = before.pins
    assert {session: after.visit(session) for session in homes} == homes


def test_r178_a_burst_spreads_by_what_is_open_here() -> None:
    """Forty requests at one instant over two workers: twenty each, since reserving counts at once."""
    world = World([0, 0])
    assert Counter(world.send(f"s{n}")[0].worker.id for n in range(40)) == {"w0": 20, "w1": 20}


def test_r074_sessions_of_equal_service_spread_evenly() -> None:
    """200 requests over four workers, each ended before the next: fifty each."""
    world = World([0, 0, 0, 0])
    assert set(Counter(world.visit(f"s{n}") for n in range(200)).values()) == {50}


# ── every policy ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("policy", EVERY_POLICY)
def test_r077_no_policy_prefers_the_first_of_equals(policy: str) -> None:
    """Forty requests over four idle workers, one after another and at one instant: nobody is left out."""
    turns = World([0, 0, 0, 0], policy=policy)
    burst = World([0, 0, 0, 0], policy=policy)
    one_by_one = Counter(turns.visit() for _ in range(40))
    at_once = Counter(burst.send()[0].worker.id for _ in range(40))
    spread = (1, 25) if policy in ("random", "power-of-two") else (8, 12)
    for served in (one_by_one, at_once):
        assert len(served) == 4
        assert spread[0] <= min(served.values()) <= max(served.values()) <= spread[1]


@pytest.mark.parametrize("policy", EVERY_POLICY)
@given(loads=st.lists(st.integers(0, 4), min_size=1, max_size=8), seed=st.integers(0, 99), data=st.data())
def test_a_decision_changes_nothing_and_can_be_repeated(
    policy: str, loads: list[int], seed: int, data: st.DataObject
) -> None:
    """The same view, time and dice give the same decision, in the pool and not among those tried."""
    world = World(loads, policy=policy)
    tried = data.draw(st.lists(st.integers(0, len(loads) - 1), unique=True, max_size=len(loads) - 1))
    decisions, column = [], list(world.ledger.outstanding)
    for _ in range(2):
        world.dice = random.Random(seed)
        decisions.append(world.decide("s", tried=tried))
    first, second = decisions
    assert (first.worker, first.why, first.turn, first.pin) == (second.worker, second.why, second.turn, second.pin)
    assert decisions[0].worker in set(world.workers) - {world.workers[i] for i in tried}
    assert (world.ledger.outstanding, len(world.pins)) == (column, 0)


@pytest.mark.parametrize("policy", EVERY_POLICY)
def test_nobody_left_to_try(policy: str) -> None:
    """When every worker was tried there is no decision."""
    with pytest.raises(NoRoutableWorker, match="was tried"):
        World([0, 0], policy=policy).decide(tried=[0, 1])


def test_explaining_gives_every_candidate_and_the_same_choice() -> None:
    """Asked to explain, a decision lists open requests, rotation, pin, and who was tried already."""
    world = World([3, 0, 1])
    world.turn = 2
    world.pins.pin("s", "w2", 0.0)
    told = world.decide("s", tried=[1], explain=True)
    assert told.worker is world.decide("s", tried=[1]).worker is world.workers[2]
    assert told.candidates == (
        Candidate("w0", 3, None, {"rotation": 1.0}),
        Candidate("w1", 0, "already tried", {"rotation": 2.0}),
        Candidate("w2", 1, None, {"rotation": 0.0, "pinned": 1.0}),
    )
    assert world.decide("s").candidates == ()


def test_pins_compose_with_any_policy() -> None:
    """A row that asks for pins gets them, and chooses by its own rule where the pin does not lead."""
    world = World([5, 0, 0], policy="round-robin")
    world.policy = world.policy._replace(name="sticky-round-robin", pins=True)
    assert [world.visit(session) for session in "stsu"] == ["w0", "w1", "w0", "w2"]
