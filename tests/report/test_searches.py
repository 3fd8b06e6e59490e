"""What a search says in words."""

from __future__ import annotations

import pytest

from infera_cli.report import words


@pytest.mark.parametrize(("passed", "said"), [
    (0, "whether any concurrency keeps 95% of requests within the limits is not known; of concurrency 2 nothing could"),
    (1, "concurrency between 1 (kept) and 2 (not kept); of concurrency 2 nothing could be judged"),
])
def test_a_search_that_could_judge_nothing_blames_no_level(passed: int, said: str) -> None:
    """All answers were cut off in every probe: more time is asked for, and nothing was missed."""
    seen = {"2": {"good": 0, "judged": 0, "probes": 3, "empty": 3}}
    found = {"kind": "concurrency", "passed": passed, "failed": 2, "attainment": 0.95, "evidence": seen}
    told = words.find_max(found)
    assert said in told
    assert "a longer -d" in told
    assert "not even" not in told


@pytest.mark.parametrize(("kind", "duration", "said"), [
    ("concurrency", 1.0, "concurrency (1 to 4,096 callers)"), ("rate", 2.0, "rate (2 to 4,096 req/s)"),
    ("rate", 30.0, "rate (1 to 4,096 req/s, or less where 1 is too much)"),
])
def test_a_search_begins_where_a_probe_has_some_requests(kind: str, duration: float, said: str) -> None:
    """Of 2 s, a rate of 1 is too little to see anything."""
    assert said in words.search_begins(kind, 0.95, (), count=None, duration=duration)
