"""The end of a report: what to know of a run, the verdict, and why the exit code is not 0."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from infera_cli.report import console, ending, page
from infera_cli.workload.cutoff import RunEnd
from infera_cli.workload.gates import parse as parse_gates
from infera_cli.workload.goodput import parse as parse_limits
from infera_cli.workload.measures import Tally
from infera_cli.workload.result import Client, Document, Run
from infera_cli.workload.sample import Sample
from infera_cli.workload.verdict import Circumstances, judge
from tests.workload.samples import failure, sample


def run(cell: str = "", *, bad: int = 0, gates: tuple[str, ...] = (), cpu: float = 0.1, repeat: int = 0,
        allowed: float = 0.0, every: float = 0.1, offered: float | None = None, **options: Any) -> Run:
    """Twenty requests, one `every` so many seconds and half a second long, and `bad` failures."""
    tally = Tally().update([sample(n * every, 0.1, (0.1,) * 4, cached=0) for n in range(20)])
    figures = tally.update([failure("http_500", n * every) for n in range(bad)]).figures(
        planned=20 + bad, offered=offered, span=20 / offered if offered else None)
    around = Circumstances(cpu=cpu, max_error_rate=allowed, gates=parse_gates(gates))
    return Run(cell, repeat, "2026-01-01T10:00:00+00:00", False,
               {"model": "m", "max_error_rate": allowed, "burstiness": 1.0, **options}, {"url": "http://x"},
               Client("here", 1, cpu, cpu, "same host"), figures, None, judge(figures, around))


def told(*runs: Run, code: int, **findings: Any) -> str:
    """The last line on a terminal."""
    return console.report(Document(runs, "0", findings), code=code, width=200).rstrip().splitlines()[-1]


@pytest.mark.parametrize(("found", "said"), [
    (run(), "VALID"),
    (run(bad=1, allowed=0.1), "VALID"),
    (run(bad=5), "VALID, but 5 of 25 requests failed (exit 1)"),
    (run(bad=5, allowed=0.1), "VALID, but 5 of 25 requests failed, more than --max-error-rate 0.1 (exit 1)"),
    (run(gates=("hits:0.5",)), "VALID, but a limit of --gate was missed (exit 1)"),
    (run(bad=5, gates=("hits:0.5", "http_500:0")),
     "VALID, but 5 of 25 requests failed and 2 limits of --gate were missed (exit 1)"),
    (run(cpu=1.0), "INVALID: a load process used 100% of a core: use more --processes (exit 4)"),
    (run(cpu=1.0, bad=5),
     "INVALID: a load process used 100% of a core: use more --processes; besides, 5 of 25 requests failed (exit 1)"),
])
def test_the_last_line_says_why_the_exit_code_is_not_0(found: Run, said: str) -> None:
    """Figures may be true and the command fail all the same: both are in the line, on the page without the code."""
    assert told(found, code=found.verdict.exit_code) == said
    assert said.replace(f" (exit {found.verdict.exit_code})", "") in page.report(Document((found,), "0"))


def test_a_run_is_not_blamed_for_what_ended_the_benchmark() -> None:
    """The second run of a sweep could not begin: exit 1, and the first one is VALID without a word."""
    document = Document((run("rate=1"),), "0", {"failed": "why"})
    shown = console.report(document, code=1, width=200).rstrip()
    assert "\nVALID\n" in shown
    assert shown.splitlines()[-1].startswith("PARTIAL: the benchmark could not go on (why)")


def test_what_is_wrong_is_not_green() -> None:
    """VALID in green is for runs that exit 0."""
    assert "\x1b[32mVALID" not in console.report(Document((run(bad=5),), "0"), colour=True, code=1)


def test_the_last_line_of_a_sweep_names_the_runs_that_decided() -> None:
    """Those whose exit code it is, four of them by name; nothing where all is well."""
    fine, bad, late = run("rate=1"), run("rate=2", bad=5), run("rate=4", cpu=1.0)
    assert told(fine, bad, late, code=1) == "exit 1: rate=2: 5 of 25 requests failed"
    assert told(fine, late, replace(late, repeat=1), code=4) == "exit 4: rate=4: INVALID; rate=4 #2: INVALID"
    assert told(*[bad] * 6, code=1).endswith("; rate=2: 5 of 25 requests failed; 2 more")
    assert ending.last(Document((fine, fine), "0"), 0) == ""


def test_a_search_ends_in_its_exit_code() -> None:
    """The sentence has the reason; probes of more load than was found, which fail on purpose, are not blamed."""
    found = {"kind": "rate", "passed": 1, "failed": 2, "attainment": 0.95}
    runs = (run("rate=1", gates=("hits:0.5",)), run("rate=2", bad=5))
    last = told(*runs, code=1, find_max=found)
    assert "missed there: hits is 0, asked was ≥ 0.5" in last
    assert last.endswith("(exit 1)")
    assert "exit" not in told(*runs, code=0, find_max=found)


def test_figures_that_a_run_does_not_have_are_left_out() -> None:
    """No dash that nobody can explain: a steady part that is too short, the asked rate of callers."""
    long, short = run(every=0.0), run(every=2.0)
    for found, known in ((long, True), (short, False)):
        shown = console.report(Document((found,), "0"))
        assert ("steady part" in shown) is known
        assert "asked rate" not in shown


def test_repetitions_are_explained_where_their_marks_are() -> None:
    """#2 stands in the table of runs, and under it what it means; not where nothing is repeated."""
    again, once = Document((run("rate=1"), run("rate=1", repeat=1)), "0"), Document((run("rate=1"), run("rate=2")), "0")
    for show in (console.report, page.report):
        assert "#2 and on: the same load again" in show(again)
        assert "#2 and on" not in show(once)


def test_what_the_dice_of_arrivals_do_to_a_short_run_is_told() -> None:
    """Twenty requests at five a second are four seconds; between first and last they may be any time apart."""
    found = run(rate=5.0, offered=5.0)      # in 1.9 s
    shown = console.report(Document((found,), "0"), width=300)
    said = ("note     asked for and sent were 20 requests in 4 s; the dice of the arrivals put the first and the last"
            " 1.9 s apart, hence 10 req/s between these two")
    assert said in shown
    assert shown.rstrip().endswith("\nVALID")
    for label in ("asked rate", "reached rate"):
        assert f"{label} " in shown
    for even in (run(rate=10.0, offered=10.0), run(rate=5.0, offered=5.0, burstiness="inf"), run(concurrency=4)):
        assert not list(ending.notes(even))


def test_a_run_that_takes_longer_than_its_duration_says_why() -> None:
    """-d ends the arrivals, not the answers; who is not told takes a hang for it."""
    [said] = ending.notes(run(duration=1.0, grace=30.0))
    assert said == ("the run took 2.4 s: -d 1 is how long requests come, and what was open or waited by then had up to"
                    " 30 s more (--grace)")
    assert not list(ending.notes(run(duration=2.0, grace=30.0)))
    assert not list(ending.notes(replace(run(duration=0.5), partial=True)))


def ended(*open_ones: Sample, slos: tuple[str, ...] = ()) -> Run:
    """Three answers, and what was open when a run with --grace 1 ended."""
    samples = [sample(n, 0.1, cached=0) for n in range(3)] + [RunEnd(1.0).judged(one) for one in open_ones]
    figures = Tally(parse_limits(slos)).update(samples).figures()
    return replace(run(), figures=figures, verdict=judge(figures, Circumstances()))


def hung(end: float) -> Sample:
    """Sent at 0, and without a token at `end`."""
    return failure("incomplete", 0.0, end, finish="")


def test_requests_that_hung_until_the_run_ended_are_in_the_last_line() -> None:
    """Exit 1, in words, and in the list of failures what they waited for."""
    found = ended(hung(4.0), hung(4.0))
    assert told(found, code=1) == (
        "VALID, but 2 of 5 requests failed, 2 of which still waited for a token when the run ended (exit 1)")
    assert "2 × timeout_run_end: no token in 4 s, when the run ended (-d and --grace)" in console.report(
        Document((found,), "0"), width=200)


def test_what_was_cut_off_is_judged_where_that_is_certain_and_that_is_told() -> None:
    """One had missed the limit, two could still have kept it: a note each, and nothing where there is no limit."""
    found = ended(hung(0.9), hung(0.2), hung(0.3), slos=("ttft:500",))
    assert list(ending.notes(found))[-2:] == [
        "1 requests that were cut off had missed a limit by then, and count as such",
        "2 requests that were cut off could still have kept the limits, and are not judged"]
    assert "within all limits" in console.report(Document((found,), "0"))
    assert not [said for said in ending.notes(ended(hung(0.9))) if "cut off" in said]


def test_hits_that_the_server_does_not_report_are_unknown() -> None:
    """No line with 0 %, nor a worker's share: a note says so, and by which flags engines report them."""
    found = replace(run(), figures=Tally().update([sample(worker="w")]).figures())
    [said] = ending.notes(found)
    assert said.startswith("prefix-cache hits are unknown: the server reports no cached tokens")
    for flag in ("--enable-prompt-tokens-details", "--enable-cache-report"):
        assert flag in said
    for shown in (console.report(Document((found,), "0"), width=400), page.report(Document((found,), "0"))):
        assert "prefix-cache hits are unknown" in shown
        assert not re.search(r"(?<!\d)0\.0%", shown)
    assert not list(ending.notes(run()))
    nothing = replace(found, figures=Tally().update([failure("connect")]).figures())
    assert not list(ending.notes(nothing))
