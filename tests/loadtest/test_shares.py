"""How a load is split over processes: everything is sent once, and no limit is exceeded."""

from __future__ import annotations

import itertools

import pytest

from infera_cli.loadtest.driver import turns
from infera_cli.loadtest.job import DatasetSpec, Job, Target
from infera_cli.workload.arrivals import Arrivals, ClosedLoop, OpenLoop, split
from infera_cli.workload.requests import Shape
from tests.loadtest.runs import document, run
from tests.support.timed_target import TimedTarget, stream


def job(arrivals: Arrivals, limit: int | None = None) -> Job:
    return Job(Target("http://x"), Shape("chat", "m"), arrivals, DatasetSpec(), 1, max_concurrency=limit)


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
@pytest.mark.parametrize(("arrivals", "limit"), [
    (ClosedLoop(1, count=8), None), (ClosedLoop(2, count=8), None), (ClosedLoop(3, count=8), None),
    (ClosedLoop(7, count=8), 2), (OpenLoop(5.0, count=8), None), (OpenLoop(5.0, count=8), 1),
])
def test_each_request_falls_to_one_part_that_can_send_it(arrivals: Arrivals, limit: int | None, parts: int) -> None:
    """Whatever the number of callers, places and processes: each arrival is one part's, and that part has both."""
    taken: list[int] = []
    for part in range(parts):
        mine = turns(job(arrivals, limit).for_part(part, parts))
        got = list(itertools.compress(range(40), itertools.cycle(mine)))
        taken += got
        if got and isinstance(arrivals, ClosedLoop):
            assert split(arrivals, part, parts) > 0
        if got and limit is not None:
            assert split(ClosedLoop(limit), part, parts) > 0
    assert sorted(taken) == list(range(40))


def test_fewer_callers_than_processes_send_everything() -> None:
    """One caller and two processes: the process without a caller leaves its share to the other, warm-up too."""
    with TimedTarget(lambda _got: stream(0.005, 0.0, 1)) as target:
        found = run(target.url, concurrency=1, count=8, processes=2, warmups=3)
        assert len(target.got) == 11
    assert (found.figures.counts.sent, found.verdict.exit_code) == (8, 0), found.verdict


def test_a_sweep_from_one_caller_on_runs_in_two_processes() -> None:
    """Each level sends all of its requests."""
    with TimedTarget(lambda _got: stream(0.005, 0.0, 1)) as target:
        found = document(target.url, sweep=("concurrency", (1.0, 2.0, 3.0)), count=9, processes=2)
    assert [one.figures.counts.ok for one in found.runs] == [9, 9, 9]
    assert [one.verdict.exit_code for one in found.runs] == [0, 0, 0]


def test_one_place_is_one_open_request_over_all_processes() -> None:
    """--max-concurrency 1 with two processes: never two at once."""
    with TimedTarget(lambda _got: stream(0.02, 0.0, 1)) as target:
        found = run(target.url, rate=60.0, count=12, max_concurrency=1, processes=2)
    assert (found.figures.counts.ok, found.figures.concurrency.peak) == (12, 1)


def test_a_process_with_next_to_nothing_to_send_was_not_busy() -> None:
    """Milliseconds of getting started are no share of a core."""
    with TimedTarget(lambda _got: stream(0.005, 0.0, 1)) as target:
        found = run(target.url, rate=5.0, count=2, processes=3)
    assert found.client.cpu_max < 0.9
    assert found.verdict.status == "VALID", found.verdict.reasons


def test_past_the_router_every_worker_has_its_turn() -> None:
    """With --direct and two processes, requests go to both workers."""
    reply = stream(0.005, 0.0, 1)
    with TimedTarget(lambda _got: reply) as router, TimedTarget(lambda _got: reply) as one, \
            TimedTarget(lambda _got: reply) as two:
        run(router.url, rate=120.0, count=48, processes=2, direct=(one.url, two.url))
        shares = [len(target.got) for target in (router, one, two)]
    assert shares[0] == 24
    assert min(shares[1:]) >= 6
