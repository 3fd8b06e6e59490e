"""What `/metrics` tells, before, during and after."""

from __future__ import annotations

import re

import pytest

from infera_cli.events import Reloaded, WorkerChanged, WorkerFault
from infera_cli.telemetry.names import FAMILIES, REQUEST_BUCKETS
from tests.telemetry.world import FakePool, World, done, member

SERVED = 'model="m",worker_id="a"'


def test_every_metric_is_declared_and_both_formats_agree() -> None:
    """Each declared family is on the page, nothing else of ours is, and OpenMetrics says the same."""
    world = World()
    world.pooled = [FakePool(world.table[0].spec)]
    world.bus.emit(done())
    page = world.text()
    declared = {family.name for family in FAMILIES}
    assert set(re.findall(r"^# TYPE (infera_\w+)", page, re.MULTILINE)) == declared
    plain, modern = world.scrape(), world.scrape_openmetrics()
    ours = {key for key in plain if key.startswith("infera_")}
    assert {key for key in modern if key.startswith("infera_")} == ours
    assert all(plain[key] == modern[key] for key in ours)
    assert "process_resident_memory_bytes" in plain
    assert world.metrics.render("")[1].startswith("text/plain")
    modern_type = world.metrics.render("application/openmetrics-text; version=1.0.0")[1]
    assert modern_type.startswith("application/openmetrics-text")


def test_names_follow_the_conventions() -> None:
    """Counters end in `_total`, times in `_seconds`, labels are a small known set; blocks are blocks."""
    in_blocks = {"infera_router_pick_cache_hits", "infera_router_pick_request_blocks"}
    allowed = {
        "retention", "cause", "what", "router", "outcome", "role", "worker_id", "disagg_mode", "model", "reason",
        "state", "stage", "result", "version", "source",
    }  # fmt: skip
    for family in FAMILIES:
        assert family.name.startswith("infera_")
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert family.kind != "histogram" or family.name.endswith("_seconds") or family.name in in_blocks
        assert set(family.labels) <= allowed


def test_known_series_start_at_zero() -> None:
    """A rate works before the first error: outcomes, refusals and tokens are there at 0."""
    found = World().scrape()
    for outcome in ("ok", "4xx", "5xx", "broken", "timeout", "client_gone"):
        assert found[f'infera_requests_total{{{SERVED},outcome="{outcome}"}}'] == 0
    assert found['infera_requests_rejected_total{reason="full"}'] == 0
    assert found['infera_request_duration_seconds_count{router="mixed",outcome="error"}'] == 0
    assert found[f"infera_prompt_tokens_total{{{SERVED}}}"] == 0
    assert found['infera_source_reloads_total{result="refused"}'] == 0
    assert found['infera_active_workers{disagg_mode="prefill"}'] == 0


def test_finished_requests_are_counted_by_model_worker_and_outcome() -> None:
    """Outcomes, retries, tokens, and durations to the last byte."""
    world = World()
    usage = b'{"usage":{"prompt_tokens":10,"completion_tokens":4,"cache_read_input_tokens":8}}'
    good, retried = done(tail=usage), done(tail=usage, retries=1)
    for event in (good, retried, done(outcome="broken", total=3.0), done(worker="b")):
        world.bus.emit(event)
    found = world.scrape()
    assert found[f'infera_requests_total{{{SERVED},outcome="ok"}}'] == 2
    assert found[f'infera_requests_total{{{SERVED},outcome="broken"}}'] == 1
    assert found[f"infera_prompt_tokens_total{{{SERVED}}}"] == 20
    assert found[f"infera_completion_tokens_total{{{SERVED}}}"] == 8
    assert found[f"infera_cached_tokens_total{{{SERVED}}}"] == 16
    assert found[f"infera_retries_total{{{SERVED}}}"] == 1
    assert found[f"infera_worker_request_duration_seconds_sum{{{SERVED}}}"] == pytest.approx(3.5)
    assert found['infera_request_duration_seconds_count{router="mixed",outcome="ok"}'] == 3
    assert found['infera_request_duration_seconds_count{router="mixed",outcome="error"}'] == 1


def test_c37_streams_tell_first_token_mean_gap_and_whole_duration() -> None:
    """One observation a stream: its first body byte, and the mean time between chunks; unary: neither."""
    world = World()
    world.bus.emit(done(streamed=True, first_byte=0.5, total=2.5, chunks=11))
    world.bus.emit(done(streamed=True, first_byte=None, outcome="client_gone"))
    world.bus.emit(done(streamed=True, first_byte=0.3, total=0.3, chunks=1))
    world.bus.emit(done())
    found = world.scrape()
    assert found[f"infera_time_to_first_token_seconds_count{{{SERVED}}}"] == 2
    assert found[f"infera_time_to_first_token_seconds_sum{{{SERVED}}}"] == pytest.approx(0.8)
    assert found[f"infera_stream_chunk_gap_seconds_count{{{SERVED}}}"] == 1
    assert found[f"infera_stream_chunk_gap_seconds_sum{{{SERVED}}}"] == pytest.approx(0.2)
    assert found[f"infera_worker_request_duration_seconds_sum{{{SERVED}}}"] == pytest.approx(2.5 + 0.25 + 0.3 + 0.25)


def test_r179_durations_fall_into_different_finite_buckets_up_to_600_s() -> None:
    """Answers of 0.2, 8, 45 and 300 s are told apart; the last finite bucket is 600 s."""
    world = World()
    for seconds in (0.2, 8, 45, 300):
        world.bus.emit(done(total=seconds))
    found = world.scrape()
    name = f"infera_worker_request_duration_seconds_bucket{{{SERVED},le="
    steps = [found[f'{name}"{float(bound)}"}}'] for bound in REQUEST_BUCKETS]
    assert REQUEST_BUCKETS[-1] >= 600
    assert [steps.index(count) for count in (1, 2, 3, 4)] == sorted({steps.index(c) for c in (1, 2, 3, 4)})
    assert steps[-1] == found[f'{name}"+Inf"}}'] == 4


def test_large_and_small_batches_count_alike() -> None:
    """A large batch at once fills the same buckets as its requests one by one, bounds included."""
    values = [0.0, 0.005, 0.0050001, 0.25, 0.3, 1, 600, 601, 9999] * 5
    once, one_by_one = World(), World()
    for value in values:
        once.bus.emit(done(total=value))
        one_by_one.bus.emit(done(total=value))
        one_by_one.recorder.flush()
    key = "infera_worker_request_duration_seconds_bucket"
    assert [v for k, v in once.scrape().items() if k.startswith(key)] == [
        v for k, v in one_by_one.scrape().items() if k.startswith(key)
    ]


def test_r175_live_numbers_are_read_at_the_scrape_and_gone_workers_have_no_series() -> None:
    """In-flight is what it is now; after removal no series carries the worker's name."""
    world = World()
    world.table[0].outstanding = world.inside = 1
    world.pooled = [FakePool(world.table[0].spec)]
    world.bus.emit(done())
    world.bus.emit(WorkerFault("a", "connect", "r1"))
    found = world.scrape()
    assert found['infera_worker_inflight{worker_id="a"}'] == 1
    assert found['infera_request_inflight{router="mixed"}'] == 1
    world.table[0].outstanding = world.inside = 0
    found = world.scrape()
    assert found['infera_worker_inflight{worker_id="a"}'] == 0
    assert found['infera_request_inflight{router="mixed"}'] == 0
    world.bus.emit(done())
    del world.table[0]
    world.bus.emit(WorkerChanged("a", "removed"))
    world.bus.emit(done())
    world.bus.emit(WorkerFault("a", "connect", "r1"))
    assert 'worker_id="a"' not in world.text()
    assert world.scrape()['infera_requests_total{model="m",worker_id="",outcome="ok"}'] == 2


def test_s53_successor_of_a_removed_worker_starts_at_zero() -> None:
    """A worker that comes back under the same name does not inherit."""
    world = World()
    world.bus.emit(done())
    world.bus.emit(WorkerChanged("a", "removed"))
    assert world.scrape()[f'infera_requests_total{{{SERVED},outcome="ok"}}'] == 0


def test_workers_show_breaker_readiness_picks_and_connections() -> None:
    """Live numbers of each worker under the names of infera-wire §8."""
    world = World([
        member("a", breaker="half_open", breaker_trips=3, routed=7),
        member("b", breaker="open", draining=True), member("c", ready=False),
    ])  # fmt: skip
    world.pooled = [FakePool(world.table[0].spec), FakePool(member("gone").spec)]
    found = world.scrape()
    assert [found[f'infera_router_worker_breaker_state{{worker_id="{w}"}}'] for w in "abc"] == [1, 2, 0]
    assert found['infera_router_worker_breaker_trips_total{worker_id="a"}'] == 3
    assert found['infera_router_picks_total{role="mixed",worker_id="a"}'] == 7
    assert found['infera_active_workers{disagg_mode="mixed"}'] == 1
    assert found['infera_worker_draining{worker_id="b"}'] == 1
    assert found['infera_worker_ready{worker_id="c"}'] == 0
    assert found['infera_upstream_connections{worker_id="a",state="busy"}'] == 2
    assert found['infera_upstream_connections{worker_id="a",state="idle"}'] == 3
    assert found['infera_upstream_connections_created_total{worker_id="a"}'] == 8
    assert found['infera_upstream_connections_reused_total{worker_id="a"}'] == 90
    assert not any('"gone"' in key for key in found)


def test_names_that_no_worker_lists_become_other() -> None:
    """A client cannot make labels; a request without a model counts for the only one there is."""
    world = World()
    for number in range(50):
        world.bus.emit(done(model=f"made-up-{number}"))
    world.bus.emit(done(model=None))
    found = world.scrape()
    assert found['infera_requests_total{model="other",worker_id="a",outcome="ok"}'] == 50
    assert found[f'infera_requests_total{{{SERVED},outcome="ok"}}'] == 1
    assert "made-up" not in world.text()


def test_refusals_are_counted_by_reason_and_status() -> None:
    """A refused request has the reason that it was refused for, its literal status as outcome, and no worker."""
    world = World()
    for status, reason in ((429, "full"), (503, "nothing_routable"), (529, "nothing_routable"), (429, "quota")):
        world.bus.emit(done(outcome="rejected", status=status, reason=reason, worker=None, picked=None, sent=None))
    found = world.scrape()
    assert found['infera_requests_rejected_total{reason="full"}'] == 1
    assert found['infera_requests_rejected_total{reason="nothing_routable"}'] == 2
    assert found['infera_requests_rejected_total{reason="quota"}'] == 1
    assert found['infera_requests_rejected_total{reason="other"}'] == 0
    assert found['infera_request_duration_seconds_count{router="mixed",outcome="503"}'] == 1
    assert found['infera_requests_total{model="m",worker_id="",outcome="rejected"}'] == 4


def test_a_refusal_without_a_reason_is_counted_as_other() -> None:
    """Every refusal is in the family, whoever forgot to say why."""
    world = World()
    world.bus.emit(done(outcome="rejected", status=418, reason=None, worker=None, picked=None, sent=None))
    found = {key: value for key, value in world.scrape().items() if key.startswith("infera_requests_rejected_total{")}
    assert found['infera_requests_rejected_total{reason="other"}'] == 1
    assert sum(found.values()) == 1


def test_own_time_is_told_by_stage_for_requests_of_one_attempt() -> None:
    """Queue, pick and connect add up to the router's own part; retried requests would mix in the worker's."""
    world = World()
    world.bus.emit(done(received=0.002, picked=0.0025, sent=0.0035))
    world.bus.emit(done(retries=1))
    found = world.scrape()
    stages = ("queue", "pick", "connect")
    sums = [found[f'infera_router_stage_seconds_sum{{stage="{stage}"}}'] for stage in stages]
    assert sums == pytest.approx([0.002, 0.0005, 0.001])
    assert found['infera_router_stage_seconds_count{stage="pick"}'] == 1


def test_faults_reloads_sessions_and_lag_are_shown() -> None:
    """The rest of the router's life."""
    world = World()
    world.bus.emit(WorkerFault("a", "connect", "r1", "refused"))
    world.bus.emit(Reloaded("replicas.json"))
    world.bus.emit(Reloaded("replicas.json", "line 3"))
    world.metrics.observe_lag(0.002)
    found = world.scrape()
    assert found['infera_worker_faults_total{worker_id="a",reason="connect"}'] == 1
    assert found['infera_source_reloads_total{result="ok"}'] == 1
    assert found['infera_source_reloads_total{result="refused"}'] == 1
    assert found["infera_router_sessions"] == 4
    assert found["infera_router_affinity_hits_total"] == 6
    assert found["infera_event_loop_lag_seconds_count"] == 1
    assert found['infera_build_info{version="1.2.3"}'] == 1


def test_odd_names_are_escaped() -> None:
    """Quotes, backslashes and newlines in names do not break the page."""
    odd = 'a"b\\c\nd'
    world = World([member(odd, models=(odd,))])
    world.bus.emit(done(model=odd, worker=odd))
    found = world.scrape()
    assert found[f'infera_requests_total{{model="{odd}",worker_id="{odd}",outcome="ok"}}'] == 1
