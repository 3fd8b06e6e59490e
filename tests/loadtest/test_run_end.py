"""Requests that are open when a run ends: a server that hangs is no success, whoever else it serves in time."""

from __future__ import annotations

import math

import pytest

from infera_cli.workload.goodput import parse
from infera_cli.workload.result import Run
from tests.loadtest.runs import document, run
from tests.support.timed_target import Got, Script, TimedTarget, stream, text

HANGS = Script([(1000.0, text("late"))])


def judged(found: Run) -> tuple[int, int]:
    """(within the limits, of so many)."""
    assert found.figures.attainment is not None
    return found.figures.attainment.good, found.figures.attainment.judged


def test_a_target_that_hangs_every_second_request_fails() -> None:
    """Open loop: half of the requests are answered in 10 ms, the others never: exit 1, half within the limits."""
    with TimedTarget(lambda got: HANGS if got.number % 2 else stream(0.01, 0.0, 1)) as target:
        found = run(target.url, rate=10.0, burstiness=math.inf, duration=2.0, grace=1.0, slos=parse(["ttft:300"]))
    counts = found.figures.counts
    assert (counts.sent, counts.ok, counts.failures, counts.incomplete) == (20, 10, {"timeout_run_end": 10}, 0)
    assert (judged(found), found.verdict.exit_code) == ((10, 20), 1)


@pytest.mark.parametrize("stream_it", [True, False])
def test_callers_that_are_left_waiting_are_failures(stream_it: bool) -> None:
    """Closed loop: each of four callers is answered once and then waits for ever, as a stream and as a whole."""

    def reply(got: Got) -> Script:
        whole = Script([(0.01, b'{"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}')],
                       kind="application/json")
        return HANGS if got.number >= 4 else stream(0.01, 0.0, 1) if stream_it else whole

    with TimedTarget(reply) as target:
        found = run(target.url, concurrency=4, duration=0.5, grace=1.0, stream=stream_it)
    assert (found.figures.counts.ok, found.figures.counts.failures) == (4, {"timeout_run_end": 4})
    assert found.verdict.exit_code == 1


@pytest.mark.parametrize("grace", [0.0, 1.0])
def test_a_target_that_freezes_in_mid_answer_fails(grace: float) -> None:
    """Three callers in the middle of their answers, and no more data: nobody arrives any more, and that is seen."""
    with TimedTarget(lambda _got: HANGS) as target:

        def reply(got: Got) -> Script:
            if not got.number:
                target.freeze(got.at + 0.4, got.at + 60.0)
            return stream(0.05, 0.02, 2000)

        target._reply = reply
        found = run(target.url, concurrency=3, duration=2.0, grace=grace)
    assert found.figures.counts.failures == {"timeout_run_end": 3}
    assert found.figures.counts.examples["timeout_run_end"].startswith("no further token in ")
    assert found.verdict.exit_code == 1


def test_what_was_sent_a_moment_before_the_end_is_no_failure() -> None:
    """Answers of 0.4 s through one place, cut off 0.2 s after the last was sent: incomplete, as before."""
    with TimedTarget(lambda _got: stream(0.4, 0.0, 1)) as target:
        found = run(target.url, concurrency=1, duration=1.0, grace=0.0, slos=parse(["ttft:300"]))
    counts = found.figures.counts
    assert (counts.ok, counts.failed, counts.incomplete, found.verdict.exit_code) == (2, 0, 1, 0)


def test_what_is_known_of_an_open_request_is_told() -> None:
    """A refusal and an error in the stream, each with its body left open: failures of their own names."""

    def reply(got: Got) -> Script:
        if got.number % 2:
            return Script([(0.01, b"{"), (1000.0, b"}")], status=500, kind="application/json")
        return Script([(0.01, b'data: {"error": {"message": "oom"}}\n\n'), (1000.0, b"")])

    with TimedTarget(reply) as target:
        found = run(target.url, concurrency=2, duration=0.3, grace=1.5)
    assert found.figures.counts.failures == {"error_event": 1, "http_500": 1}


def test_a_search_over_a_target_that_hangs_finds_nothing_to_keep() -> None:
    """Every second request is never answered: not even the least rate keeps them, and less says little."""
    with TimedTarget(lambda got: HANGS if got.number % 2 else stream(0.01, 0.0, 1)) as target:
        found = document(target.url, find_max="rate", duration=2.0, grace=1.0, burstiness=math.inf,
                         slos=parse(["ttft:300"]), attainment=0.99)
    search = found.findings["find_max"]
    assert (search["passed"], search["failed"], search["finished"]) == (0, 2, True)
    assert list(search["evidence"]) == ["2"]
