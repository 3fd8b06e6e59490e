"""What is told before and while a load runs."""

from __future__ import annotations

import msgspec
import pytest
from rich.console import Console

from infera_cli.report import words
from infera_cli.report.progress import Bar
from infera_cli.workload.goodput import parse


@pytest.mark.parametrize(("kind", "count", "duration", "said"), [
    ("concurrency", None, 30.0, "highest concurrency (1 to 4,096 callers) with 95% of requests within ttft ≤ 300 ms, "),
    ("concurrency", None, 30.0, "a probe is 30 s of load (10 levels, as is usual: 5 to 15 min), and a level takes"),
    ("concurrency", None, 2.0, "a probe is 2 s of load (10 levels, as is usual: 20 to 60 s), and"),
    ("concurrency", 50, 2.0, "a probe is 50 requests or 2 s of load"),
    ("concurrency", 50, None, "a probe is 50 requests, and"),
    ("rate", 200, None, "the highest rate (1 to 4,096 req/s, or less where 1 is too much) with"),
    ("rate", 200, None, "a probe is 200 requests, 200 s at the first level, and"),
])
def test_a_search_says_beforehand_what_it_does(kind: str, count: int | None, duration: float | None, said: str) -> None:
    """Of what, over which range, and how long one probe and the whole may take."""
    limits = parse(["ttft:300", "tpot:30"])
    assert said in words.search_begins(kind, 0.95, limits, count=count, duration=duration)


class Process(msgspec.Struct):
    state: str = "running"
    done: int = 0
    failed: int = 0
    open: int = 0
    ttft: float | None = None
    lag: float = 0.0


class Plan(msgspec.Struct):
    cell: str = ""
    repeat: int = 0
    requests: int | None = None
    seconds: float | None = None


def test_progress_tells_rate_open_ttft_errors_and_time_left() -> None:
    """Half of 100 requests after 10 s: 50 %, 10 s left, the rate of late, the worst lag."""
    bar = Bar(Console(file=None, force_terminal=False))
    bar.begin(Plan("rate=5", 1, requests=100))
    assert bar.line([Process(state="ready")], 0.0) == "rate=5 #2  getting ready…"
    bar.line([Process(done=0)], 0.0)
    bar.line([Process(done=40)], 8.0)
    line = bar.line([Process(done=25, failed=1, open=3, ttft=0.2), Process(done=23, failed=1, lag=0.004)], 10.0)
    assert line.startswith("rate=5 #2  ━")
    assert " 50% 0:10 left" in line
    for said in ("4.0 req/s", "3 open", "TTFT 200 ms", "2 errors", "lag 4 ms"):
        assert said in line
    bar.end()


def test_progress_of_a_timed_run_counts_down() -> None:
    """With a duration the time itself is the progress, and who is still waited for is told; with neither, the number
    done."""
    bar = Bar(Console(force_terminal=False))
    bar.begin(Plan(seconds=60.0))
    bar.line([Process()], 0.0)
    line = bar.line([Process(done=7)], 15.0)
    assert " 25% 0:45 left" in line
    assert "no new ones" not in line
    assert "  2 open, no new ones  " in bar.line([Process(done=7, open=2)], 62.0)
    bar.begin(Plan())
    assert "7 done" in bar.line([Process(done=7)], 1.0)
