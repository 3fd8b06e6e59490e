"""Limits of one's own."""

from __future__ import annotations

import pytest

from infera_cli.errors import ConfigError, UsageError
from infera_cli.workload.figures import Figures
from infera_cli.workload.gates import parse
from infera_cli.workload.measures import Tally
from infera_cli.workload.verdict import Circumstances, judge
from tests.workload.samples import failure, sample


def run(*, lag: float = 0.002) -> Figures:
    """90 successes, a third of whose input was cached and three of which are too short, and 10 that were cut off."""
    tally = Tally().update(sample(n, 0.1, due=n - lag, cached=n % 3 * 5, wanted=1 if n > 2 else 9) for n in range(90))
    return tally.update(failure("truncated", n, n + 0.1) for n in range(10)).figures(planned=101)


@pytest.mark.parametrize(("gate", "kept"), [
    ("lag_p50:2.1", True), ("lag_p50:1.9", False), ("lag_p99:2.1", True), ("lag_p99:1.9", False),
    ("lag_max:1.9", False), ("cpu:0.5", True), ("cpu:0.3", False), ("rate:0.99", True), ("rate:1", False),
    ("truncated:0.1", True),
    ("truncated:0.09", False), ("http_500:0", True), ("token_mismatch:0.04", True), ("token_mismatch:0.03", False),
    ("cached:0.51", True), ("cached:0.49", False), ("hits:0.49", True), ("hits:0.51", False),
])
def test_a_missed_limit_is_exit_1_and_said(gate: str, kept: bool) -> None:
    """Each kind, just kept and just missed: the verdict of the load generator stays, the exit code says the rest."""
    found = judge(run(), Circumstances(cpu=0.4, max_error_rate=0.2, gates=parse([gate])))
    assert found.status == "VALID"
    assert found.exit_code == (0 if kept else 1)
    assert [said.partition(" ")[0] for said in found.missed] == ([] if kept else [gate.partition(":")[0]])


def test_usage_that_cannot_be_is_a_token_mismatch() -> None:
    """Three of a hundred: a limit of 2 % is missed."""
    figures = Tally().update(sample(n, 0.1, wanted=1, odd_usage="x" if n < 3 else "") for n in range(100)).figures()
    assert judge(figures, Circumstances(gates=parse(["token_mismatch:0.03"]))).exit_code == 0
    assert judge(figures, Circumstances(gates=parse(["token_mismatch:0.02"]))).exit_code == 1


def test_a_figure_that_a_run_does_not_have_keeps_no_limit() -> None:
    """Without a plan there is no achieved rate: that is said, and is no success."""
    figures = Tally().update(sample(n, 0.1) for n in range(3)).figures()
    found = judge(figures, Circumstances(gates=parse(["rate:0.9"])))
    assert (found.exit_code, found.missed) == (1, ("rate is not known, asked was ≥ 0.9",))


@pytest.mark.parametrize(("cached", "missed"), [
    (None, ("cached is not told by the server, asked was ≤ 0.01", "hits is not told by the server, asked was ≥ 0")),
    (0, ()),
])
def test_hits_that_the_server_does_not_tell_keep_no_limit(cached: int | None, missed: tuple[str, ...]) -> None:
    """Usage without cached tokens is no 0: whatever the limit, nothing shows that it was kept."""
    figures = Tally().update(sample(n, 0.1, cached=cached) for n in range(3)).figures()
    found = judge(figures, Circumstances(gates=parse(["cached:0.01", "hits:0"])))
    assert (found.missed, found.exit_code) == (missed, 1 if missed else 0)


def test_an_interrupted_run_stays_one() -> None:
    """Exit 130 is not hidden by a limit."""
    assert judge(run(), Circumstances(interrupted=True, gates=parse(["rate:1"]))).exit_code == 130


@pytest.mark.parametrize("word", ["lag", "lag_p99", "lag_p99:x", "speed:3", "http_5:0"])
def test_what_is_no_limit_is_refused(word: str) -> None:
    """One sentence with all names; it does not parse (rulings 5)."""
    with pytest.raises(UsageError, match="is no limit such as lag_p99:5"):
        parse([word])


@pytest.mark.parametrize("word", ["lag_p99:-1", "lag_p99:nan", "lag_p99:inf", "hits:5", "rate:98", "truncated:-0.1",
                                  "http_500:1.01", "cpu:90", "hits:nan"])
def test_a_limit_that_cannot_be_is_refused(word: str) -> None:
    """A share above 1 is a percentage that was meant otherwise, and no run could miss it or keep it."""
    with pytest.raises(ConfigError, match=f"--gate {word}: "):
        parse([word])


def test_the_rate_is_the_one_that_was_reached() -> None:
    """All of 50 requests, in twice the time that the plan gives them: half the rate."""
    slow = Tally().update(sample(n * 0.04, 0.1) for n in range(51)).figures(51, 51.0, 1.0)
    around = Circumstances(allow_degraded=True, gates=parse(["rate:0.98"]))
    assert judge(slow, around).missed == ("rate is 0.5, asked was ≥ 0.98",)
