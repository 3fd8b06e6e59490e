"""How the accuracy of `infera bench` is judged: what is true is worked out without it, and nothing is left out."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import accuracy_loads as loads
from bench import accuracy_ours as ours
from bench import accuracy_tools as tools
from bench import accuracy_truth as truth
from bench.accuracy_truth import Seen, Token
from infera_cli.report import rows
from tests.support.certificates import Certificates
from tests.support.timed_target import TimedTarget

TWO = Seen(
    sent=1.0, scheduled=0.5, due=0.9, end=2.5, connected=1.1, head=1.2, prompt=7,
    split={"pick": 0.01, "upstream": 0.03},
    tokens=[Token(1.4, 3, visible=False), Token(1.6, 2), Token(2.0, 1)])


def test_every_latency_of_the_report_is_held_against_the_truth() -> None:
    """What `infera bench` shows of latencies, and the tail that it keeps, is in at least one load."""
    judged = {figure for load in loads.LOADS for figure in load.latencies}
    apart = {"predecessor"}     # of replayed sessions alone: tests/loadtest/test_runs.py holds it against their times
    assert judged == {*rows.LATENCIES, "tail"} - apart
    assert set(truth.router(loads.queued())) == set(rows.ROUTER)


def test_the_truth_of_one_request_is_what_the_definitions_say() -> None:
    """Six tokens in three chunks, the first of them thought: each figure by hand."""
    found = {name: pool[0] for name, pool in truth.times([TWO]).items() if name not in ("itl", "icl")}
    assert found == pytest.approx({
        "ttft": 0.4, "ttft_sched": 0.9, "tpot": 0.12, "tpot_adj": 0.2, "e2el": 1.0, "e2el_sched": 1.5, "ttfo": 0.6,
        "head": 0.2, "connect": 0.1, "tail": 0.5, "queue": 0.4, "lag": 0.1,
    })
    assert truth.times([TWO])["icl"] == pytest.approx([0.2, 0.4])
    assert truth.times([TWO])["itl"] == pytest.approx([0.1, 0.1, 0.4])
    split = {name: pool[0] for name, pool in truth.router([TWO]).items()}
    assert split == pytest.approx({
        "client_connect": 0.1, "client_to_router": 0.06, "pick": 0.01, "upstream": 0.03, "worker_first_token": 0.23,
        "worker_answer": 0.6,
    })


def test_percentiles_are_linear_and_with_failures_by_nearest_rank() -> None:
    """Between two values lies a percentile; a failure is a value that nothing reaches."""
    assert truth.statistic([1.0, 2.0, 3.0], "p90") == pytest.approx(2.8)
    assert truth.adjusted([1.0, 2.0, 3.0], 1, "p50") == 2.0
    assert truth.adjusted([1.0, 2.0, 3.0], 1, "p90") == math.inf


def test_who_finds_no_place_waits_for_the_first_that_comes_free() -> None:
    """Two places, three seconds each: the third goes when the first is over, the fourth on time."""
    begins = truth.starts([0.0, 1.0, 2.0, 9.0], [3.0, 3.0, 3.0, 3.0], 2)
    assert begins == [0.0, 1.0, 3.0, 9.0]
    assert truth.due([0.0, 1.0, 2.0, 9.0], [begin + 3.0 for begin in begins], 2) == begins


def test_the_steady_part_outlasts_a_short_dip_and_no_long_one() -> None:
    """Two open is the peak: a gap of 20 ms between two requests is nothing, one of 200 ms an end."""
    spans = [(0.0, 9.0), (0.0, 2.0), (2.02, 4.0), (4.2, 5.0)]
    every = [replace(TWO, sent=begin, end=end) for begin, end in spans]
    assert truth.steady(every) == (0.0, 4.0)
    assert truth.peak(every) == 2


def test_the_busiest_second_holds_the_most_tokens_of_any() -> None:
    """A second is a second, wherever it begins and however long the run is."""
    every = [replace(TWO, tokens=[Token(at, 1) for at in (0.1, 0.9, 1.05, 1.95, 2.0)])]
    assert truth.busiest(every) == 3.0
    assert truth.busiest(every, 0.2) == 2.0


def test_a_limit_lies_where_no_request_comes_near() -> None:
    """Half of the widest gap to either side; the failed keep no limit, and who has one token keeps that on TPOT."""
    every = loads.queued()
    for kind in ("ttft", "ttft_sched", "tpot", "e2el", "e2el_sched"):
        most = truth.limit(every, kind)
        assert min(abs(truth.value(one, kind) - most) for one in every if one.outcome == truth.OK) > 0.0005
        kept = truth.within(every, {kind: most})["within all limits"]
        assert 5 < kept < loads.COUNT - len(loads.FAILURES) * 2
    single = replace(TWO, tokens=[Token(1.4)])
    assert truth.within([single, replace(TWO, outcome="empty")], {"tpot": 0.001})["within tpot"] == 1


def test_the_open_load_queues_fails_and_has_a_steady_part() -> None:
    """Without these the figures that need them would be compared at 0, or not at all."""
    every = loads.queued()
    queue = truth.times(every)["queue"]
    assert truth.statistic(queue, "p50") > 0.05
    assert min(queue) == 0.0
    assert {one.outcome for one in every} == {truth.OK, *loads.FAILURES.values()}
    assert "answers/s, steady" in truth.rates(every, {}, loads.RATE)
    ends = truth.times(every)["e2el"]
    assert truth.adjusted(ends, 8, "p90") < math.inf
    assert truth.adjusted(ends, 8, "p95") == math.inf


def played(said: float, script: float = 0.1) -> ours.Played:
    """The load of held requests, when all but one figure is right."""
    load = replace(loads.LOADS[1], latencies=("ttft",), placed=False)
    log = [replace(TWO, sent=at, end=at + 0.3, tokens=[Token(at + 0.1)], split={}) for at in (0.0, 0.5)]
    foreseen = [replace(one, tokens=[Token(one.sent + script)]) for one in log]
    ttft = dict.fromkeys(truth.STATISTICS, 0.1) | {"p50": said}
    figures = {"latency": {"ttft": ttft}, "rates": {}, "concurrency": {}, "counts": {
        "sent": 2, "ok": 2, "failed": 0, "failures": {}, "input_tokens": 14, "output_tokens": 2, "cached_tokens": 0}}
    return ours.Played(load, foreseen, log, figures, 0.0)


def wrong(one: ours.Played) -> list[str]:
    """Figures of the load that are not right, but for rates."""
    return [row.figure for row in ours.rows(one) if not row.right and "/s" not in row.figure and "ms" in row.figure]


def test_a_figure_is_right_within_two_milliseconds_or_one_per_cent() -> None:
    """Of both truths, for what is not of the slowest few; a figure that nobody told is wrong."""
    assert wrong(played(0.1019)) == []
    assert wrong(played(0.1021)) == ["ttft p50, ms"]
    assert wrong(played(0.1, script=0.11)) == ["ttft mean, ms", "ttft p50, ms", "ttft p90, ms"]
    assert wrong(played(math.nan)) == ["ttft p50, ms"]
    assert ours.right(1000.0, 1009.0)
    assert not ours.right(1000.0, 1011.0)


def test_a_rate_that_is_not_told_is_wrong() -> None:
    """And so is one that is told though it cannot be known."""
    silent = played(0.1)
    assert not ours.all_right([silent])
    assert [row.figure for row in ours.rows(silent) if row.figure == "answers/s" and not row.right]
    silent.said["rates"]["goodput"] = 1.0
    assert [row.figure for row in ours.rows(silent) if row.figure == "good answers/s" and not row.right]


def test_the_busiest_second_is_right_to_the_bins_it_is_counted_in() -> None:
    """Two tokens within any second of the log: more is wrong, also when it comes of a second that is shorter."""
    one = played(0.1)
    for said, fine in ((2.0, True), (2 / 0.97, False), (1.0, False)):
        one.said["rates"]["peak_output_tokens"] = said
        assert [row.right for row in ours.rows(one) if row.figure == ours.BUSIEST] == [fine]


def test_a_target_can_hold_handshakes_back(tmp_path: Path) -> None:
    """A connection is ready after the time it was told to wait, and says which it was."""
    files = Certificates(tmp_path)
    load = replace(loads.LOADS[2], hold=lambda number: 0.03 * number)
    with TimedTarget(load.reply, tls=(Path(files.cert), Path(files.key)), hold=load.hold, punctual=True) as target:
        said = tools.infera_figures(target.url, tmp_path, (*loads.COMMON, "-c", "1", "-n", "4", "--cacert", files.ca))
        seen = loads.connected(target, by_log=True)
    assert said["counts"]["ok"] == len(seen) == 4
    assert min(dial.number for dial in target.dials.values()) <= 1      # who asks for the models may be another
    for dial in target.dials.values():
        assert dial.ready - dial.accepted >= 0.03 * dial.number


def test_stopping_reaches_every_process_of_the_load_generator() -> None:
    """Its children are found, also those in sessions of their own."""
    code = "import subprocess, sys; subprocess.run(['sleep', '30'], start_new_session=True)"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        while len(family := loads.descent(process.pid)) < 2:
            assert process.poll() is None
        assert family[0] == process.pid
        for pid in family:
            os.kill(pid, signal.SIGKILL)
