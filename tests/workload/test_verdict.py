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


def paced(count: int, every: float, **more: Any) -> Figures:
    """`count` requests, one `every` so many seconds, of a plan of 50 a second."""
    return Tally().update(sample(n * every, 0.05, **more) for n in range(count)).figures(count, 50.0, count / 50)


def test_requests_sent_in_more_time_than_planned_are_invalid() -> None:
    """50 at 50 a second that took seven seconds: the asked rate was not there; at its own pace it was."""
    held = judge(paced(50, 0.14, scheduled=0.0), Circumstances())
    assert (held.status, held.exit_code) == ("INVALID", 4)
    assert held.reasons == ("requests were sent at 14.6% of the asked rate: --max-concurrency held them back",)
    assert judge(paced(50, 0.14), Circumstances()).reasons == (
        "requests were sent at 14.6% of the asked rate: use more --processes",)
    assert judge(paced(50, 0.0203), Circumstances()).status == "VALID"
    assert judge(paced(50, 0.14), Circumstances(interrupted=True)).status == "VALID"


def test_a_short_plan_may_be_late_by_what_any_request_may() -> None:
    """Two requests in 40 ms, the second 9 ms late: that is the send lag's to judge."""
    figures = Tally().update([sample(0.0), sample(0.049)]).figures(2, 50.0, 0.04)
    assert judge(figures, Circumstances()).status == "VALID"


def test_with_direct_the_later_half_says_how_long_sending_took() -> None:
    """Both halves together are one plan of 50 a second."""
    halves = [Tally().update(sample(n * 0.08) for n in range(25)).figures(None, 25.0, 1.0) for _ in range(2)]
    found = judge(halves[0], Circumstances(halved=True, planned=50), halves[1])
    assert found.reasons == ("requests were sent at 52.1% of the asked rate: use more --processes",)


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


def test_the_half_past_the_router_is_judged_as_well() -> None:
    """With --direct: failures there are exit 1, a late half is INVALID, a half without an answer too."""
    fine, around = run(20), Circumstances(max_error_rate=0.1, halved=True)
    broken = judge(fine, around, run(8, 2))
    assert broken.exit_code == 1
    assert judge(fine, around, run(9, 1)).exit_code == 0
    late = judge(fine, around, Tally().update(sample(n, 0.1, due=n - 1) for n in range(10)).figures())
    assert (late.status, late.exit_code) == ("INVALID", 4)
    assert late.reasons[0].startswith("past the router: send lag p99")
    assert judge(fine, around, run(0)).reasons == ("past the router: not one request was completed",)


def test_with_direct_both_halves_together_are_what_was_planned() -> None:
    """40 planned, 20 and 20 sent: all; 20 and 10: not."""
    around = Circumstances(halved=True, planned=40)
    assert judge(run(20), around, run(20)).status == "VALID"
    assert judge(run(20), around, run(10)).reasons == ("only 75.0% of the planned requests were sent",)


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_run_without_an_answer_is_never_valid(interrupted: bool) -> None:
    """Nothing sent, or nothing that was answered before the end: there is nothing to trust."""
    around = Circumstances(interrupted=interrupted)
    assert judge(run(0), around).status == "INVALID"
    assert judge(run(5, outcome="incomplete"), around).status == "INVALID"


def test_a_warm_run_that_found_little_cached_is_told() -> None:
    """Less than half of the input cached: a warning, where the server says what was cached and the run meant it."""
    warm = Circumstances(cold=False, warm=True)
    assert any("only 49.0% of the input" in text for text in judge(run(input=100, cached=49), warm).warnings)
    for figures, around in ((run(input=100, cached=50), warm), (run(input=100), warm),
                            (run(input=100, cached=49), Circumstances(cold=False))):
        assert not any("meant to be warm" in text for text in judge(figures, around).warnings)


def test_usage_that_cannot_be_is_told_and_no_fault_of_the_load() -> None:
    """How many answers, and why; in both halves; chunks that were counted instead are not said to be for want of it."""
    odd = Tally().update(sample(n, 0.1, output=None, odd_usage="a" if n % 2 else "b") for n in range(5)).figures()
    found = judge(odd, Circumstances(), odd)
    told = "5 answers had usage that cannot be, which was passed over (2 × a, 3 × b)"
    assert (found.status, found.exit_code) == ("VALID", 0)
    assert told in found.warnings
    assert f"past the router: {told}" in found.warnings
    assert "output tokens are estimated: the server sent no usage that can be, so chunks were counted" in found.warnings


def test_requests_that_were_sent_again_are_told() -> None:
    """They are successes, but not silently."""
    told = judge(run(10, resent=2), Circumstances()).warnings
    assert "20 requests were sent again: the kept connection that they went out on was closed at once" in told
    assert not any("sent again" in said for said in judge(run(), Circumstances()).warnings)


def test_rows_that_were_left_out_are_told() -> None:
    """How many of a trace's rows were not sent."""
    assert any(text.startswith("3 rows of the trace") for text in judge(run(), Circumstances(left_out=3)).warnings)


def test_chunks_that_were_read_together_are_told() -> None:
    """A chunk that came in the read of the one before has an ICL of 0: from one in twenty on that is said."""
    figures = Tally().update(sample(n, 0.1, (0.01,) * 18 + (0.0, 0.0)) for n in range(5)).figures()
    assert figures.counts.together == 10
    assert "10.0% of the chunks were read together with the one before, so their ICL is 0" in judge(
        figures, Circumstances()).warnings
    few = Tally().update(sample(n, 0.1, (0.01,) * 19 + (0.0,)) for n in range(5)).figures()
    assert not any("read together" in said for said in judge(few, Circumstances()).warnings)
