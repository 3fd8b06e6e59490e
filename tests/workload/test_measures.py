"""From samples to figures, against truths worked out by hand."""

from __future__ import annotations

import math
from array import array

import pytest

from infera_cli.workload import windows
from infera_cli.workload.distribution import Micros, Values, between, with_failures
from infera_cli.workload.figures import Figures, imbalance
from infera_cli.workload.goodput import parse
from infera_cli.workload.measures import Tally
from infera_cli.workload.sample import Sample, pack, unpack_all
from infera_cli.workload.verdict import error_rate
from tests.workload.samples import failure, sample


def figures(*samples: Sample, slos: tuple[str, ...] = ()) -> Figures:
    return Tally(parse(slos)).update(samples).figures()


def test_times_and_rates_of_one_answer() -> None:
    """TTFT, TPOT, E2EL and tail follow their formulas."""
    found = figures(sample(1.0, 0.3, (0.02,) * 9, scheduled=0.9, end=1.6))
    mean = {name: of.mean for name, of in found.latency.items()}
    assert mean["ttft"] == pytest.approx(0.3)
    assert mean["ttft_sched"] == pytest.approx(0.4)
    assert mean["tpot"] == pytest.approx(0.02)
    assert mean["e2el"] == pytest.approx(0.48)
    assert mean["tail"] == pytest.approx(0.12)
    assert found.rates.overall_output_tokens == pytest.approx(10 / 0.6)


def test_r154_tokens_are_what_the_server_counted() -> None:
    """Seven chunks of usage 7 are 7 tokens, TPOT over 6; without usage chunks are counted, and called estimated."""
    told = figures(sample(0, 0.1, (0.05,) * 6, output=7))
    assert told.counts.output_tokens == 7
    assert told.latency["tpot"].mean == pytest.approx(0.3 / 6)
    untold = figures(sample(0, 0.1, (0.05,) * 19, output=None))
    assert untold.counts.output_tokens == 20
    assert untold.counts.sources == {"chunks": 1}
    counted = figures(sample(0, 0.1, (0.05,) * 19, output=None, counted=31))
    assert (counted.counts.output_tokens, counted.counts.sources) == (31, {"tokenizer": 1})


def test_r155_several_tokens_a_chunk() -> None:
    """50 chunks of 40 ms with 200 tokens: TPOT 1960/199 ms, ICL 40 ms by its own name, peak not below mean."""
    found = figures(sample(0, 0.04, (0.04,) * 49, output=200))
    assert found.latency["tpot"].mean == pytest.approx(1.96 / 199)
    assert found.latency["icl"].p50 == pytest.approx(0.04)
    assert "itl" not in found.latency
    assert found.sizes["tokens_per_chunk"].mean == 4
    assert found.rates.peak_output_tokens >= found.rates.overall_output_tokens


def test_r155_known_chunk_sizes_make_inter_token_times() -> None:
    """When every chunk is known to hold 4 tokens, a gap of 40 ms is four of 10 ms."""
    found = figures(sample(0, 0.04, (0.04,) * 3, output=16, weights=array("H", [4] * 4).tobytes()))
    assert found.latency["itl"].mean == pytest.approx(0.01)
    assert found.latency["itl"].n == 12


def test_tpot_without_the_first_chunk_where_its_tokens_are_known() -> None:
    """Three chunks of 4 tokens over 80 ms: TPOT over the 11 tokens after the first, adjusted over 8."""
    found = figures(sample(0, 0.04, (0.04,) * 2, output=12, weights=array("H", [4] * 3).tobytes())).latency
    assert found["tpot"].mean == pytest.approx(0.08 / 11)
    assert found["tpot_adj"].mean == pytest.approx(0.01)
    assert "tpot_adj" not in figures(sample(0, 0.04, (0.04,) * 2, output=12)).latency


def test_r157_failures_are_in_no_latency() -> None:
    """80 successes, 10 answers of 500, 10 resets: latency over the 80, 800 tokens, errors 20 % in two kinds."""
    good = [sample(n * 0.01, 0.1, (0.0,) * 9) for n in range(80)]
    refused = [failure("http_500", n * 0.01, n * 0.01 + 0.005) for n in range(10)]
    broken = [failure("reset", 0, 0.05, events=3, first=0.02, last=0.05) for _ in range(10)]
    found = figures(*good, *refused, *broken)
    assert (found.counts.ok, found.counts.failed) == (80, 20)
    assert found.counts.failures == {"http_500": 10, "reset": 10}
    assert found.latency["ttft"].n == found.latency["e2el"].n == 80
    assert found.latency["e2el"].min == pytest.approx(0.1)
    assert found.counts.output_tokens == 800
    assert error_rate(found) == pytest.approx(0.2)


def test_failures_take_for_ever_in_adjusted_percentiles() -> None:
    """With 20 % failures the adjusted p50 is finite and the adjusted p90 infinite."""
    good = [sample(0, 0.001 * n) for n in range(1, 81)]
    found = figures(*good, *(failure("connect") for _ in range(20)))
    assert found.adjusted["ttft"]["p50"] == pytest.approx(0.050)
    assert found.adjusted["ttft"]["p90"] is None


def test_r158_open_requests_count_with_their_tokens() -> None:
    """Ten endless streams cut off at 10 s: 500 tok/s, none complete, none failed, request rate 0."""
    cut = [sample(0, 0.02, (0.02,) * 499, outcome="incomplete", output=None, end=10.0) for _ in range(10)]
    found = figures(*cut)
    assert found.rates.overall_output_tokens == pytest.approx(500)
    assert (found.counts.ok, found.counts.failed, found.counts.incomplete) == (0, 0, 10)
    assert found.rates.overall_requests == 0
    assert "ttft" not in found.latency


def test_r160_rates_of_the_whole_and_of_the_steady_part() -> None:
    """20 requests at once, the first done at 5 s and then one every 0.5 s: 1.38 req/s overall, 2.0 between."""
    found = figures(*(sample(0, 0.1, (4.9 + 0.5 * n,)) for n in range(20)))
    assert found.rates.overall_requests == pytest.approx(20 / 14.5)
    assert found.rates.between_completions == pytest.approx(2.0)


def test_a_steady_part_that_is_too_short_gives_no_rate() -> None:
    """Two requests that overlap for a tenth of the run tell no steady rate, wherever it would be shown or compared."""
    long = figures(sample(0, 0.1, (4.9,)), sample(0.5, 0.1, (4.4,)))
    short = figures(sample(0, 0.1, (4.9,)), sample(4.5, 0.1, (4.9,)))
    assert long.rates.steady_output_tokens is not None
    assert short.rates.steady_s == pytest.approx(0.5)
    assert short.rates.steady_output_tokens is None
    assert (short.rates.steady_requests, short.rates.steady_input_tokens) == (None, None)


def test_steady_rates_are_of_what_happened_in_the_steady_part() -> None:
    """Two callers for ten seconds and one alone for five more: ten answers end within the ten."""
    both = [sample(2.0 * n, 0.5, (1.5,)) for n in range(5)] * 2
    found = figures(*both, sample(10.0, 0.5, (4.5,)))
    assert found.rates.steady_s == pytest.approx(10)
    assert found.rates.steady_requests == pytest.approx(1.0)
    assert found.rates.steady_input_tokens == pytest.approx(10)
    assert found.rates.overall_tokens == pytest.approx((11 * 10 + 11 * 2) / 15)


def test_r169_percentiles_never_cross() -> None:
    """One sample of 625 ms has all percentiles 625; of 50 the p99 is not above the longest."""
    one = figures(sample(0, 0.625)).latency["ttft"]
    assert {one.min, one.p50, one.p90, one.p99, one.p999, one.max, one.mean} == {0.625}
    of = figures(*(sample(0, 0.010 * n) for n in range(11, 60)), sample(0, 0.596)).latency["ttft"]
    assert of.p50 <= of.p90 <= of.p95 <= of.p99 <= of.p999 <= of.max == 0.596


def test_r173_processes_are_merged_by_sample() -> None:
    """900 of 100 ms and 100 of 1000 ms with 10 failures: p50 100 ms, p95 1000 ms, failures 1 %."""
    first = b"".join(pack(sample(0, 0.1)) for _ in range(900))
    second = b"".join(pack(sample(0, 1.0)) for _ in range(90)) + b"".join(pack(failure("reset")) for _ in range(10))
    found = Tally().update(unpack_all(iter([first]))).update(unpack_all(iter([second]))).figures()
    assert (found.counts.sent, found.counts.failed) == (1000, 10)
    assert found.latency["ttft"].p50 == pytest.approx(0.1)
    assert found.latency["ttft"].p95 == pytest.approx(1.0)


def test_spool_records_survive_every_split_and_a_torn_end() -> None:
    """A spool read in pieces gives the same samples; a record cut off by a kill is dropped."""
    whole = pack(sample(1.0, 0.1, (0.02, 0.03))) + pack(failure("reset"))
    for cut in range(len(whole)):
        found = list(unpack_all(iter([whole[:cut], whole[cut:]])))
        assert [one.outcome for one in found] == ["ok", "reset"]
    assert [one.outcome for one in unpack_all(iter([whole[:-1]]))] == ["ok"]
    assert list(found[0].gap_list()) == [20000, 30000]


def test_warm_up_is_kept_apart() -> None:
    """Samples of the warm-up are in no figure."""
    found = figures(sample(0, 9.0, measured=False), sample(0, 0.1))
    assert (found.counts.sent, found.latency["ttft"].max) == (1, 0.1)


def test_requests_that_waited_when_the_run_ended_are_nothing_but_counted() -> None:
    """R158: never sent is no failure, not in the window, not in the percentiles with failures, not judged."""
    found = figures(sample(0, 0.1), failure("unsent", 50.0, 50.0), slos=("ttft:500",))
    assert (found.counts.sent, found.counts.failed, found.counts.incomplete, found.counts.unsent) == (1, 0, 0, 1)
    assert found.rates.window_s == pytest.approx(0.1)
    assert not found.adjusted
    assert found.attainment is not None
    assert found.attainment.judged == 1


def test_requests_that_were_not_sent_are_failures_outside_the_window() -> None:
    """A due request that the cap held back is a failure, but neither sent nor in any rate."""
    found = figures(sample(0, 0.1), failure("not_sent", 50.0, 50.0))
    assert (found.counts.sent, found.counts.failed, found.counts.not_sent) == (1, 1, 1)
    assert found.rates.window_s == pytest.approx(0.1)


def test_lag_and_queue_are_told_apart() -> None:
    """Waiting for a free place is the queue, being late after that the lag."""
    found = figures(sample(1.5, 0.1, scheduled=1.0, due=1.4))
    assert found.latency["queue"].mean == pytest.approx(0.4)
    assert found.latency["lag"].mean == pytest.approx(0.1)


def test_no_wait_is_a_plain_zero() -> None:
    """A due time a hair before the planned one is no wait of minus nothing."""
    queue = figures(sample(1.0, scheduled=1.0 + 1e-9, due=1.0)).latency["queue"]
    assert [math.copysign(1.0, value) for value in (queue.min, queue.mean, queue.max)] == [1.0, 1.0, 1.0]


def test_requests_sent_again_and_usage_that_cannot_be_are_counted() -> None:
    """Every sending that was in vain; of usage, each success, which then has no length to be wrong."""
    found = figures(sample(0.0, resent=2, wanted=7, odd_usage="few"), sample(1.0, odd_usage="few"),
                    sample(2.0, wanted=7), failure("closed", odd_usage="few", resent=1)).counts
    assert (found.resent, found.odd_usage, found.tokens_wrong) == (3, {"few": 2}, 1)


def test_workers_have_shares_and_an_imbalance() -> None:
    """Three requests on one worker and one on another: imbalance 1.5; hits are summed per worker."""
    found = figures(
        *(sample(0, 0.1, worker="a", input=100, cached=50) for _ in range(3)),
        sample(0, 0.1, worker="b", input=100, cached=0), failure("reset", worker="b"),
    )
    assert [(share.worker, share.requests, share.failed, share.cached_tokens) for share in found.workers] == [
        ("a", 3, 0, 150), ("b", 1, 1, 0)]
    assert imbalance(found.workers) == 1.5
    assert found.counts.cached_tokens == 150


def test_the_time_to_the_first_byte_is_split() -> None:
    """What the router and its worker account for is subtracted; the rest is between client and router."""
    timing = {"queue": 0.01, "pick": 0.001, "upstream": 0.08}
    found = figures(sample(0, 0.2, connected=0.02, head=0.12, timing=timing))
    assert found.router["upstream"].mean == 0.08
    assert found.router["client_to_router"].mean == pytest.approx(0.1 - 0.091)


def test_the_parts_between_client_router_and_worker_add_up() -> None:
    """An engine that sends its headers at once: its worker's share of TTFT is what follows them, too; the rest of the
    answer makes E2EL. A whole answer has no first token, and no such parts."""
    timing = {"queue": 0.01, "pick": 0.001, "upstream": 0.002}
    found = figures(sample(0, 0.5, (0.1,) * 3, connected=0.02, head=0.04, timing=timing))
    mean = {name: of.mean for name, of in found.router.items()}
    assert mean["worker_first_token"] == pytest.approx(0.002 + 0.46)
    before = sum(mean[name] for name in ("client_connect", "client_to_router", "queue", "pick", "worker_first_token"))
    assert before == pytest.approx(found.latency["ttft"].mean)
    assert before + mean["worker_answer"] == pytest.approx(found.latency["e2el"].mean)
    whole = figures(sample(0, 0.5, head=0.04, first=None, first_content=None, timing=timing))
    assert {"worker_first_token", "worker_answer"}.isdisjoint(whole.router)


def test_input_that_the_server_does_not_tell_is_in_no_rate() -> None:
    """Usage without prompt tokens, or none: unknown, no sum with the output, and none of the steady part."""
    whole = figures(*(sample(0, 0.1, (0.1,) * 9, input=None) for _ in range(3)))
    found = whole.rates
    assert found.steady_output_tokens
    assert whole.counts.input_tokens is None
    assert (found.overall_input_tokens, found.overall_tokens, found.steady_input_tokens) == (None, None, None)


@pytest.mark.parametrize(("window", "peak"), [(1.5, 3.0), (0.6, 2 / 0.6)])
def test_the_busiest_second_is_a_second(window: float, peak: float) -> None:
    """Whatever the length of the run; only of a shorter one the whole is taken."""
    found = windows.Timeline()
    for at in (0.005, 0.505, 0.985, 1.205)[: 4 if window > 1 else 2]:
        found.add(at, 1)
    assert found.peak(window, 0.0) == pytest.approx(peak)


def test_what_came_at_the_edges_of_a_span_is_in_it() -> None:
    """A prompt is as a whole within the steady part or not, to the instant."""
    found = windows.Moments()
    for at in (0.999, 1.0, 2.004, 2.005, 2.006):
        found.add(at, 10)
    assert found.within(1.0, 2.005) == 30


def test_goodput_counts_what_met_every_limit() -> None:
    """Good needs all limits; attainment is over all that was sent, goodput over the window."""
    found = figures(
        sample(0, 0.1, (0.02,) * 9), sample(0, 0.5, (0.02,) * 9), sample(0, 0.1, (0.5,) * 9), failure("reset"),
        sample(0, 0.1), slos=("ttft:300", "tpot:30"),
    )
    assert found.attainment is not None
    assert (found.attainment.judged, found.attainment.good) == (5, 2)
    assert found.attainment.met == {"ttft": 3, "tpot": 3}
    assert found.rates.goodput == pytest.approx(2 / found.rates.window_s)


def test_concurrency_is_an_exact_sweep() -> None:
    """Two overlapping seconds within three: mean 4/3, peak 2, one request after another never overlaps."""
    found = windows.concurrency(array("d", [0, 1]), array("d", [2, 3]))
    assert found.mean == pytest.approx(4 / 3)
    assert (found.peak, found.steady_start, found.steady_end) == (2, 1, 2)
    assert windows.concurrency(array("d", [0, 1]), array("d", [1, 2])).peak == 1


def test_a_short_dip_does_not_end_the_steady_part() -> None:
    """A caller that sends its next request after a millisecond keeps the run steady."""
    found = windows.concurrency(array("d", [0, 1.001, 5]), array("d", [1, 2, 6]))
    assert (found.steady_start, found.steady_end) == (0, 2)


def test_counted_microseconds_agree_with_plain_values() -> None:
    """The pool that counts whole microseconds has the same figures as one that keeps every value."""
    counted, plain = Micros(), Values()
    for step in range(1, 500):
        value = (step * 7919) % 1000
        counted.add(value)
        plain.add(value / 1e6)
    first, second = counted.figures(), plain.figures()
    assert first is not None
    assert second is not None
    for name in ("mean", "std", "min", "p50", "p90", "p99", "p999", "max"):
        assert getattr(first, name) == pytest.approx(getattr(second, name), abs=1e-12)


def test_percentiles_are_linear_between_ranks() -> None:
    """p50 of 1, 2, 3, 4 is 2.5 and p90 is 3.7, as numpy has it."""
    assert between([1, 2, 3, 4], 0.5) == 2.5
    assert between([1, 2, 3, 4], 0.9) == pytest.approx(3.7)
    assert with_failures([1, 2, 3, 4], 1, 0.5) == 3


def test_nothing_at_all_has_figures_too() -> None:
    """A run without a request has zeros and no latency."""
    found = figures()
    assert (found.counts.sent, found.rates.overall_requests, found.latency) == (0, 0, {})
