"""Arrival plans."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest

from infera_cli.errors import ConfigError
from infera_cli.workload.arrivals import (
    BURSTIEST,
    ClosedLoop,
    OpenLoop,
    Ramp,
    Replay,
    check,
    offsets,
    planned,
    span,
    split,
)


def test_a_constant_plan_is_evenly_spaced() -> None:
    """With infinite burstiness one request is due every 1/rate seconds."""
    assert list(offsets(OpenLoop(10, math.inf, count=4), 1)) == pytest.approx([0.0, 0.1, 0.2, 0.3])


def test_an_infinite_rate_sends_all_at_once() -> None:
    """At rate inf every request is due at the start."""
    assert list(offsets(OpenLoop(math.inf, count=3), 1)) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0, math.inf])
def test_a_plan_holds_exactly_the_requests_of_its_rate_and_duration(burstiness: float) -> None:
    """50 req/s for 20 s are 1000 arrivals, rising, all within the 20 s, whatever the burstiness."""
    due = list(offsets(OpenLoop(50, burstiness, duration=20), 7))
    assert len(due) == 1000
    assert due == sorted(due)
    assert due[0] >= 0
    assert due[-1] < 20


@pytest.mark.parametrize(("burstiness", "spread"), [(0.25, 2.0), (1.0, 1.0), (4.0, 0.5)])
def test_burstiness_is_the_shape_of_gamma_gaps(burstiness: float, spread: float) -> None:
    """The coefficient of variation of the gaps is 1/sqrt(burstiness): 1 for Poisson."""
    due = list(offsets(OpenLoop(100, burstiness, count=20_000), 3))
    gaps = [later - earlier for earlier, later in itertools.pairwise(due)]
    assert statistics.fmean(gaps) == pytest.approx(0.01, rel=0.01)
    assert statistics.stdev(gaps) / statistics.fmean(gaps) == pytest.approx(spread, rel=0.05)


def test_a_plan_follows_from_its_seed() -> None:
    """The same seed gives the same plan, another seed another."""
    plan = OpenLoop(5, count=50)
    assert list(offsets(plan, 1)) == list(offsets(plan, 1))
    assert list(offsets(plan, 1)) != list(offsets(plan, 2))


def test_several_processes_share_one_plan() -> None:
    """Every second arrival each, two processes send the whole plan and nothing twice."""
    plan = OpenLoop(5, count=51)
    whole = list(offsets(plan, 9))
    parts = [list(itertools.islice(offsets(plan, 9), part, None, 2)) for part in range(2)]
    assert sorted(parts[0] + parts[1]) == whole


def test_a_linear_ramp_doubles_the_arrivals_of_its_second_half() -> None:
    """From 0.001 to 20 req/s over 20 s, a quarter of the arrivals lies in the first half."""
    due = list(offsets(OpenLoop(1, math.inf, duration=20, ramp=Ramp(0.001, 20)), 1))
    assert len(due) == 200
    assert sum(at < 10 for at in due) == pytest.approx(50, abs=2)


def test_an_exponential_ramp_grows_by_equal_factors() -> None:
    """From 1 to 16 req/s, each quarter of the time sees twice the arrivals of the one before."""
    ramp = Ramp(1, 16, "exponential")
    due = list(offsets(OpenLoop(1, math.inf, duration=400, ramp=ramp), 1))
    quarters = [sum(low <= at < low + 100 for at in due) for low in (0, 100, 200, 300)]
    assert [later / earlier for earlier, later in itertools.pairwise(quarters)] == pytest.approx([2, 2, 2], rel=0.03)


def test_a_flat_ramp_is_a_constant_rate() -> None:
    """A ramp between equal rates is that rate."""
    plan = OpenLoop(1, math.inf, count=3, ramp=Ramp(2, 2))
    assert list(offsets(plan, 1)) == pytest.approx([0, 0.5, 1.0])
    assert span(plan) == pytest.approx(1.5)


def test_the_earlier_of_number_and_duration_ends_a_plan() -> None:
    """-n 100 at 10 req/s for 5 s are 50 requests; for 60 s they are 100."""
    assert planned(OpenLoop(10, count=100, duration=5)) == 50
    assert planned(OpenLoop(10, count=100, duration=60)) == 100


def test_callers_are_shared_out_evenly() -> None:
    """Seven callers on three processes are three, two and two."""
    assert [split(ClosedLoop(7), part, 3) for part in range(3)] == [3, 2, 2]


@pytest.mark.parametrize("plan", [
    OpenLoop(0, count=1), OpenLoop(-1, count=1), OpenLoop(math.nan, count=1), OpenLoop(1),
    OpenLoop(math.inf, duration=5), OpenLoop(1, 0, count=1), OpenLoop(1, count=0), OpenLoop(1, duration=0),
    OpenLoop(0.1, duration=1), OpenLoop(1, count=1, ramp=Ramp(0, 5)), Replay(0), Replay(math.inf),
    ClosedLoop(0, count=1), ClosedLoop(1), OpenLoop(1, duration=math.inf), OpenLoop(1, 1e-7, count=1),
    OpenLoop(1, 1e300, count=1), OpenLoop(1, math.nan, count=1),
])
def test_impossible_plans_are_refused(plan: OpenLoop | Replay | ClosedLoop) -> None:
    """Rates, counts and times that cannot be end the run in words before it starts."""
    with pytest.raises(ConfigError):
        check(plan)


def test_a_ramp_takes_its_duration_without_a_count() -> None:
    """1 to 8 requests/s in 4 s are 18 arrivals, more and more of them, within these 4 s."""
    plan = OpenLoop(math.inf, math.inf, duration=4.0, ramp=Ramp(1.0, 8.0))
    check(plan)
    times = list(offsets(plan, 1))
    assert (planned(plan), len(times)) == (18, 18)
    assert times[-1] < 4.0
    assert sum(at < 2.0 for at in times) < 7


@pytest.mark.parametrize("plan", [
    OpenLoop(1e9, duration=10.0), OpenLoop(1e9, count=5), OpenLoop(1e6, duration=1e6), OpenLoop(math.inf, count=10**12),
    OpenLoop(math.inf, duration=1.0, ramp=Ramp(1.0, 1e9)), OpenLoop(math.inf, duration=1.0, ramp=Ramp(1e9, 1.0)),
])
def test_what_nobody_can_send_is_refused(plan: OpenLoop) -> None:
    """More than a million requests a second, or plans that take minutes only to walk through."""
    with pytest.raises(ConfigError, match=r"requests/s are more than can be sent|can be planned"):
        check(plan)


@pytest.mark.parametrize("seed", range(20))
def test_the_burstiest_plan_has_all_its_arrivals(seed: int) -> None:
    """Gaps so small that no number holds them are no gaps: every arrival has an instant within the plan."""
    plan = OpenLoop(5, BURSTIEST, count=2)
    check(plan)
    assert all(0 <= at <= span(plan) for at in offsets(plan, seed))
    assert len(list(offsets(OpenLoop(5, 1e-7, count=3), seed))) == 3


def test_a_huge_number_is_not_spelt_out() -> None:
    """1e300 has 301 digits, which nobody reads."""
    for plan in (OpenLoop(1e300, count=1), OpenLoop(1e5, duration=1e200)):
        with pytest.raises(ConfigError) as fault:
            check(plan)
        assert len(fault.value.message) < 120


@pytest.mark.parametrize(("rate", "duration", "count"), [
    (0.375, 4, 1), (0.75, 2, 1), (0.15, 10, 1), (0.55, 10, 5), (0.29, 100, 29), (0.1, 30, 3), (1.1, 10, 11),
    (0.7, 10, 7), (50, 20, 1000), (1e5, 100, 10**7),
])
def test_a_plan_has_the_whole_requests_that_are_due_within_its_duration(
    rate: float, duration: float, count: int
) -> None:
    """1.5 requests in 4 s are one; products that are whole stay so, whatever numbers make of 0.29 × 100."""
    plan = OpenLoop(rate, duration=duration)
    assert planned(plan) == count
    assert span(plan) <= duration
    assert planned(plan) / span(plan) == pytest.approx(rate)


def _any_plan(dice: random.Random) -> OpenLoop:
    """A plan of 1 to some 200 arrivals."""
    duration = dice.choice([dice.uniform(0.05, 100), float(dice.randint(1, 60))])
    ends = [dice.choice([dice.uniform(1, 200), dice.randint(1, 200)]) / duration for _ in range(2)]
    shape = dice.choice([None, Ramp(ends[0], ends[1]), Ramp(ends[0], ends[1], "exponential"), Ramp(ends[0], ends[0])])
    burstiness = dice.choice([BURSTIEST, 0.3, 1.0, 5.0, math.inf])
    count = dice.choice([None, None, dice.randint(1, 100)])
    return OpenLoop(ends[0], burstiness, count=count, duration=duration, ramp=shape)


@pytest.mark.parametrize("seed", range(300))
def test_no_arrival_lies_after_the_duration(seed: int) -> None:
    """Of any rate, ramp, burstiness and time: rising instants from 0 to -d, as many as planned, at the rate asked."""
    plan = _any_plan(random.Random(seed))
    rate = plan.ramp.mean() if plan.ramp else plan.rate
    assert plan.duration is not None
    if rate * plan.duration < 1:
        with pytest.raises(ConfigError, match="not one request is due"):
            check(plan)
        return
    check(plan)
    times = list(offsets(plan, seed))
    assert len(times) == planned(plan)
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] <= span(plan) * (1 + 1e-9)
    assert times[-1] <= plan.duration
    assert planned(plan) / span(plan) == pytest.approx(rate)
    if plan.count is None:
        assert rate * plan.duration - 1 < planned(plan) <= rate * plan.duration * (1 + 1e-9)
