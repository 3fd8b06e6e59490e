"""With --direct a run has two halves, and failures of either are seen wherever runs are listed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from infera_cli.cli.bench_watch import Watch
from infera_cli.report import console, page, rows, words
from infera_cli.workload.measures import Tally
from infera_cli.workload.result import Document, Run
from tests.report.test_reports import run
from tests.workload.samples import failure, sample


def halved(cell: str, past: int) -> Run:
    """A run of which `past` requests failed past the router, and one through it."""
    direct = Tally().update([sample(0.0), *(failure("connect", n) for n in range(past))]).figures()
    return replace(run(cell), direct=direct)


def test_a_table_of_runs_shows_failures_past_the_router() -> None:
    """Told apart from those through it; without any the column is as ever."""
    assert rows.failed(halved("", 2)) == "1 + 2 past"
    assert rows.failed(halved("", 0)) == rows.failed(run()) == "1"
    document = Document((halved("rate=1", 2), halved("rate=2", 0)), "0")
    assert "1 + 2 past" in console.report(document)
    assert "1 + 2 past" in page.report(document)


def test_the_line_after_a_run_shows_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a sweep each run has a line, with its failures on both ways."""
    watch = Watch()
    for one in (halved("rate=1", 2), run("rate=2")):
        watch.ended(one)
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(", 1 + 2 past the router failed")
    assert second.endswith(", 1 failed")


def test_failures_past_the_router_are_told_of_results_that_are_compared() -> None:
    """And at the load that a search found: both halves are requests that failed."""
    said = words.lost(Document((halved("", 2),), "0"))
    assert said.startswith("3 of 104 requests failed (2 × connect, 1 × http_500)")
