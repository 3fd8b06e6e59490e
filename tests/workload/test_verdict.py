"""The verdict and the exit code."""

from __future__ import annotations

from typing import Any

import pytest

from infera_cli.workload.figures import Figures
from infera_cli.workload.measures import Tally
from infera_cli.workload.verdict import Circumstances, judge
from tests.workload.samples import failure, sample


def run(ok: int = 100, failed: int = 0, planned: int | None = None, **more: Any) -> Figures:
    tally = Tally().update(sample(n, 0.1, **more) for n in range(ok))
    return tally.update(failure("http_500", n, n + 0.1) for n in range(failed)).figures(planned)


@pytest.mark.parametrize(("ok", "failed", "code"), [(95, 5, 0), (90, 10, 0), (89, 11, 1), (0, 100, 1), (0, 0, 1)])
def test_r170_exit_code_follows_the_allowed_error_share(ok: int, failed: int, code: int) -> None:
    """With 10 % allowed: 5 % and 10 % are fine, 11 % and 100 % are not, and no request at all is not."""
    assert judge(run(ok, failed), Circumstances(max_error_rate=0.10)).exit_code == code


def test_r170_an_interrupted_run_exits_130() -> None:
    """Ctrl-C gives 130 whatever else happened, and says that the report is partial."""
    found = judge(run(10, 90), Circumstances(interrupted=True))
    assert found.exit_code == 130
    assert any("interrupted" in warning for warning in found.warnings)


@pytest.mark.parametrize(("lag", "ttft", "status"), [
    (0.009, 0.1, "VALID"), (0.011, 0.1, "INVALID"), (0.045, 1.0, "VALID"), (0.055, 1.0, "INVALID"),
])
def test_send_lag_above_ten_ms_and_five_percent_of_ttft_is_invalid(lag: float, ttft: float, status: str) -> None:
    """The gate is p99 of the lag over max(10 ms, 5 % of the TTFT median) (rulings 29)."""
    found = Tally().update(sample(n, ttft, due=n - lag) for n in range(100)).figures()
    assert judge(found, Circumstances()).status == status


def test_an_invalid_run_exits_4_unless_degraded_is_allowed() -> None:
    """INVALID is exit 4; --allow-degraded makes it a remark; failures win over validity."""
    late = Tally().update(sample(n, 0.1, due=n - 1) for n in range(10)).figures()
    assert judge(late, Circumstances()).exit_code == 4
    allowed = judge(late, Circumstances(allow_degraded=True))
    assert (allowed.status, allowed.exit_code) == ("DEGRADED", 0)
    worse = Tally().update([sample(0, 0.1, due=-1), failure("reset")]).figures()
    assert judge(worse, Circumstances()).exit_code == 1


def test_answers_that_were_cut_off_say_nothing_of_the_servers_usage() -> None:
    """Ctrl-C leaves answers without usage: they are estimates, while the server is one that sends it."""
    cut = [sample(9, 0.1, (0.1,), outcome="incomplete", output=None)]
    found = judge(Tally().update([sample(0, 0.1), *cut]).figures(), Circumstances(interrupted=True)).warnings
    assert "output tokens of 1 answers that were cut off are a count of their chunks" in found
    silent = judge(Tally().update([sample(0, 0.1, output=None), *cut]).figures(), Circumstances()).warnings
    assert any("the server sent no usage" in warning for warning in silent)


def test_fewer_requests_than_planned_are_invalid() -> None:
    """Below 98 % of the planned arrivals the rate was not what was asked for."""
    assert judge(run(97, planned=100), Circumstances()).status == "INVALID"
    assert judge(run(98, planned=100), Circumstances()).status == "VALID"


def test_a_busy_or_broken_load_process_is_invalid() -> None:
    """Above 90 % of a core, or with a process dead, the load generator is not to be trusted."""
    assert judge(run(), Circumstances(cpu=0.91)).exit_code == 4
    assert judge(run(), Circumstances(broken="load process 0 died")).exit_code == 1


def test_r164_warm_prompts_in_a_cold_run_are_told() -> None:
    """More than 1 % of the input from the prefix cache is a warning in a cold run on unrelated prompts."""
    warm = run(input=100, cached=50)
    assert any("50.0% of the input" in text for text in judge(warm, Circumstances()).warnings)
    assert not any("cache" in text for text in judge(warm, Circumstances(shared=True)).warnings)
    assert not any("cache" in text for text in judge(run(input=100, cached=1), Circumstances()).warnings)


def test_a_dataset_that_went_round_is_told() -> None:
    """A file of 10 rows that served 20 requests was sent twice, which caches notice."""
    assert any("10 rows" in text for text in judge(run(20), Circumstances(rows=10)).warnings)
    assert not any("rows" in text for text in judge(run(20), Circumstances(rows=20)).warnings)


@pytest.mark.parametrize(("more", "words"), [
    ({"output": None}, "estimated"), ({"output": 4}, "tokens a chunk"), ({"wanted": 9}, "another length"),
    ({"scheduled": -5.0}, "waited for a free place"),
])
def test_what_deserves_a_look_is_said(more: dict[str, Any], words: str) -> None:
    """Estimated tokens, multi-token chunks, wrong lengths and waiting are warnings."""
    assert any(words in text for text in judge(run(20, **more), Circumstances()).warnings)
