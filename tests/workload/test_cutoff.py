"""What the end of a run makes of requests that are still open: nothing, a timeout, or a limit that was missed."""

from __future__ import annotations

from typing import Any

import pytest

from infera_cli.workload.cutoff import TIMEOUT, RunEnd
from infera_cli.workload.figures import Attainment
from infera_cli.workload.goodput import parse
from infera_cli.workload.measures import Tally
from infera_cli.workload.sample import Sample
from infera_cli.workload.verdict import Circumstances, judge
from tests.workload.samples import sample

SILENT = {"first": None, "first_content": None, "last": None, "head": None, "events": 0, "output": None, "input": None,
          "finish": ""}


def cut(sent: float, end: float, **more: Any) -> Sample:
    """A request without a token by the end of the run."""
    return sample(sent, outcome="incomplete", end=end, **{**SILENT, **more})


def flowing(sent: float, end: float, **more: Any) -> Sample:
    """A request whose answer was coming until the end of the run: fifty tokens a second."""
    many = round((end - sent) / 0.02) - 1
    return sample(sent, 0.02, (0.02,) * many, outcome="incomplete", output=None, end=end, finish="", **more)


@pytest.mark.parametrize(("open_one", "outcome"), [
    (cut(2.0, 5.0), TIMEOUT), (cut(4.0, 5.0), TIMEOUT), (cut(4.1, 5.0), "incomplete"),
    (flowing(1.0, 5.0), "incomplete"),
    (sample(1.0, 0.1, (0.1,), outcome="incomplete", output=None, end=5.0, finish=""), TIMEOUT),
    (sample(1.0, 0.1, (0.1,)), "ok"),
])
def test_who_got_nothing_for_the_grace_of_a_run_timed_out(open_one: Sample, outcome: str) -> None:
    """With --grace 1: no token in a second, or none more, is a failure; what was coming (R158), or young, is none."""
    assert RunEnd(1.0).judged(open_one).outcome == outcome


def test_a_timeout_at_the_end_says_how_long_it_waited() -> None:
    """In words, for the list of failures."""
    assert RunEnd(1.0).judged(cut(2.0, 5.0)).error == "no token in 3 s, when the run ended (-d and --grace)"
    stalled = sample(1.0, 0.5, (0.5,), outcome="incomplete", output=None, end=5.0, finish="")
    assert RunEnd(1.0).judged(stalled).error.startswith("no further token in 3 s")


@pytest.mark.parametrize(("grace", "seen", "outcome"), [
    (0.0, sample(0.0, 0.1), TIMEOUT),                       # 2 s are long where 0.1 s is usual
    (0.0, sample(0.0, 1.5), "incomplete"),                  # and not where others waited nearly as long
    (1.0, sample(0.0, 1.5), "incomplete"),                  # however short the grace
    (1.0, sample(0.0, 0.1, (1.5,)), "incomplete"),          # a later token may take as long as they do
    (1.0, sample(0.0, 1.5, first=None), "incomplete"),      # of a whole answer nothing comes before it does
    (1.0, sample(0.0, 1.5, measured=False), TIMEOUT),       # a warm-up waits for other things
    (3.0, sample(0.0, 0.1), "incomplete"),
])
def test_what_is_long_is_known_from_the_answers(grace: float, seen: Sample, outcome: str) -> None:
    """A request has waited far longer than any that was answered, and as long as the run waits for anybody."""
    end = RunEnd(grace)
    end.see(seen)
    assert end.judged(cut(8.0, 10.0)).outcome == outcome


def test_an_answer_that_is_whole_but_for_its_end_is_no_timeout() -> None:
    """Its connection was left open after the finish reason: nothing more was to come."""
    assert RunEnd(1.0).judged(sample(1.0, 0.1, (0.1,), outcome="incomplete", end=9.0, finish="stop")).outcome == (
        "incomplete")


def attained(*samples: Sample, slos: tuple[str, ...] = ("ttft:300",)) -> Attainment:
    found = Tally(parse(slos)).update(samples).figures().attainment
    assert found is not None
    return found


def test_a_limit_that_was_missed_when_the_run_ended_stays_missed() -> None:
    """No first token after 0.5 s has missed 300 ms, after 0.2 s not yet: judged, and not; both are counted."""
    found = attained(sample(0, 0.1), cut(1.0, 1.5), cut(1.3, 1.5), flowing(1.0, 1.5))
    assert (found.judged, found.good, found.met) == (2, 1, {"ttft": 1})
    assert (found.cut_off_missed, found.cut_off_open) == (1, 2)


@pytest.mark.parametrize(("one", "slos", "judged"), [
    (flowing(0.0, 2.0), ("e2el:1900",), 1), (flowing(0.0, 2.0), ("e2el:2100",), 0),
    (cut(1.0, 2.0, scheduled=0.0), ("ttft_sched:1500",), 1), (cut(1.0, 2.0), ("ttft_sched:1500",), 0),
    (cut(1.0, 2.0, scheduled=0.0), ("e2el_sched:1500",), 1),
    (cut(1.0, 2.0, scheduled=None), ("ttft_sched:1",), 0),
    (flowing(0.0, 2.0), ("tpot:1",), 0),                        # chunks are no tokens
    (flowing(0.0, 2.0, wanted=100), ("tpot:21",), 0), (flowing(0.0, 2.0, wanted=50), ("tpot:21",), 1),
    (sample(0, 0.1, (0.1,) * 9, outcome="incomplete"), ("tpot:90",), 0),        # the rest may come faster
    (sample(0, 0.1, (0.01,) * 9, outcome="incomplete", wanted=10, end=5.0), ("tpot:50",), 0),   # all came in time
    (sample(0, 0.1, (0.1,) * 9, outcome="incomplete", wanted=10, end=5.0), ("tpot:50",), 1),
    (sample(0, 0.1, (0.1,) * 9, outcome="incomplete"), ("tpot:110",), 0), (cut(0.0, 2.0), ("tpot:1",), 0),
    (flowing(0.0, 2.0), ("ttft:100", "e2el:1900"), 1),
])
def test_only_what_is_certain_is_judged(one: Sample, slos: tuple[str, ...], judged: int) -> None:
    """E2EL from the time that passed, TPOT where the tokens are known; none of them is good."""
    found = attained(one, slos=slos)
    assert (found.judged, found.good, found.cut_off_missed, found.cut_off_open) == (judged, 0, judged, 1 - judged)
    assert found.met.get("ttft", 0) == ("ttft:100" in slos)


def test_a_server_that_hangs_every_second_request_is_no_success() -> None:
    """Twenty answered, twenty hung until the run ended: half of them failed, exit 1, half are within the limits."""
    end = RunEnd(1.0)
    samples = [end.judged(one) for n in range(20) for one in (sample(n * 0.1, 0.01), cut(n * 0.1, 5.0))]
    figures = Tally(parse(["ttft:300"])).update(samples).figures()
    assert (figures.counts.ok, figures.counts.failures, figures.counts.incomplete) == (20, {TIMEOUT: 20}, 0)
    assert figures.attainment is not None
    assert (figures.attainment.judged, figures.attainment.good) == (40, 20)
    assert judge(figures, Circumstances()).exit_code == 1
