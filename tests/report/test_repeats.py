"""How much the repetitions of a load differ."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from infera_cli.report import console, page, repeats, rows
from infera_cli.workload.measures import Tally
from infera_cli.workload.result import Client, Document, Run
from infera_cli.workload.verdict import Circumstances, judge
from tests.workload.samples import failure, sample


def run(cell: str, repeat: int = 0, ttft: float = 0.1) -> Run:
    """Ten answers, each with its first token after `ttft` seconds."""
    figures = Tally().update(sample(n, ttft, (0.02,) * 4, cached=0) for n in range(10)).figures()
    return Run(cell, repeat, "2026-01-01T10:00:00+00:00", False, {"model": "m"}, {"url": "http://x"},
               Client("here", 1, 0.1, 0.1, "same host"), figures, None, judge(figures, Circumstances()))


def test_repetitions_are_shown_with_their_spread() -> None:
    """A TTFT of 100, 110 and 120 ms: the mean, and half of Student's interval; of what ran once there is none."""
    document = Document((run("rate=1"), run("rate=1", 1, 0.11), run("rate=1", 2, 0.12), run("rate=2")), "0")
    [line] = repeats.lines(document)
    assert line[:2] == ("rate=1", "3")
    mean, half = (float(part) for part in line[4].split(" ± "))
    assert (mean, half) == pytest.approx((110, 4.303 * 10 / 3**0.5), rel=0.001)
    for shown in (console.report(document, width=150), page.report(document)):
        assert "repetitions: mean ± half of its 95 % interval; latencies in ms" in shown
        assert line[4] in shown
    once = Document((run("rate=1"), run("rate=2")), "0")
    assert "repetitions" not in console.report(once) + page.report(once)


def test_only_whole_runs_are_repetitions() -> None:
    """What Ctrl-C cut off is none; a figure that one of them lacks has no mean."""
    cut = replace(run("", 2, 9.0), partial=True)
    assert next(repeats.lines(Document((run(""), run("", 1), cut), "0")))[:2] == ("run", "2")
    nothing = replace(run("", 1), figures=Tally().update([failure("connect")]).figures())
    line = next(repeats.lines(Document((run(""), nothing), "0")))
    assert (line[2] != "-", line[4:]) == (True, ("-",) * 4)


def test_a_picture_shows_the_run_in_the_middle() -> None:
    """Of three by TTFT p50, of two the better; what was cut off or is INVALID only where there is nothing else."""
    fast, middle, slow = run("", 0, 0.1), run("", 1, 0.11), run("", 2, 0.12)
    assert rows.typical([slow, fast, middle]) is middle
    assert rows.typical([slow, fast]) is fast
    assert rows.typical([replace(fast, partial=True), slow]) is slow
    bad = replace(fast, verdict=replace(fast.verdict, status="INVALID"))
    assert rows.typical([bad, slow]) is slow
    assert rows.typical([bad]) is bad
