"""The scheduler's own metrics: names, labels and numbers (replica-router §2.10, §2.13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from infera_cli.events import Bus, WorkerChanged
from infera_cli.telemetry.inferact import Latencies, NodeMetrics, WithNodes
from tests.telemetry.world import done


@dataclass
class Live:
    id: str
    models: tuple[str, ...] = ("m",)
    kv_used: float | None = None
    prefix_hits: float | None = None
    oom_events: int = 0
    stalled: bool = False


class World:
    def __init__(self, *nodes: Live) -> None:
        self.bus = Bus()
        self.nodes = list(nodes)
        self.now = 1_700_000_000.0
        self.metrics = NodeMetrics(self.bus, lambda: self.nodes, lambda: {"m": 3}, wall=lambda: self.now)

    def add(self, **changes: Any) -> None:
        self.metrics.add([done(**changes)])

    @property
    def samples(self) -> dict[str, float]:
        lines = self.metrics.write(openmetrics=False).splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def test_every_documented_name_and_label_is_there() -> None:
    """The five families of the documentation, with exactly its names, labels and help."""
    world = World(Live("node-a100-01", ("Llama-3-8B",), kv_used=0.421, prefix_hits=0.63, oom_events=2))
    world.add(worker="node-a100-01", model="Llama-3-8B", total=0.4)
    page = world.metrics.write(openmetrics=False)
    for line in (
        "# HELP inferact_requests_total Requests routed since scheduler start",
        "# TYPE inferact_requests_total counter",
        'inferact_requests_total{node="node-a100-01",model="Llama-3-8B"} 1',
        "# HELP inferact_kv_cache_used_ratio KV cache utilization (0.0-1.0)",
        'inferact_kv_cache_used_ratio{node="node-a100-01"} 0.421',
        "# HELP inferact_prefix_hit_ratio Prefix cache hit rate (rolling 5m)",
        'inferact_prefix_hit_ratio{node="node-a100-01"} 0.63',
        "# HELP inferact_request_latency_seconds Request latency histogram",
        "# TYPE inferact_request_latency_seconds histogram",
        'inferact_request_latency_seconds_bucket{node="node-a100-01",le="0.25"} 0',
        'inferact_request_latency_seconds_bucket{node="node-a100-01",le="0.5"} 1',
        'inferact_request_latency_seconds_bucket{node="node-a100-01",le="1.0"} 1',
        'inferact_request_latency_seconds_bucket{node="node-a100-01",le="+Inf"} 1',
        'inferact_request_latency_seconds_count{node="node-a100-01"} 1',
        "# HELP inferact_oom_events_total OOM events recovered by the scheduler",
        'inferact_oom_events_total{node="node-a100-01"} 2',
        'inferact_queue_waiting{model="m"} 3',
    ):
        assert line in page.splitlines()


def test_bounds_of_the_histogram() -> None:
    """0.1 0.25 0.5 1 2.5 5 10 30 60 120 and +Inf."""
    world = World(Live("a"))
    bounds = [name.partition('le="')[2].rstrip('"}') for name in world.samples if "_bucket{" in name]
    assert bounds == ["0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "60.0", "120.0", "+Inf"]


def test_nodes_appear_from_the_start() -> None:
    """Counters at nought; ratios only once they are known."""
    samples = World(Live("a", ("m", "k"))).samples
    assert samples['inferact_requests_total{node="a",model="m"}'] == 0
    assert samples['inferact_requests_total{node="a",model="k"}'] == 0
    assert samples['inferact_oom_events_total{node="a"}'] == 0
    assert not any("kv_cache_used" in name or "prefix_hit" in name for name in samples)


def test_both_text_formats_are_well_formed() -> None:
    """Labels are escaped, and the page is good Prometheus text and OpenMetrics."""
    world = World(Live('a"\\\n', ('m"x',), kv_used=0.5))
    world.add(worker='a"\\\n', model='m"x')
    text = {family.name: family for family in parse_text(world.metrics.write(openmetrics=False))}
    assert text["inferact_requests"].samples[0].labels == {"node": 'a"\\\n', "model": 'm"x'}
    page = world.metrics.write(openmetrics=True)
    names = {family.name for family in parse_openmetrics(page + "# EOF\n")}  # type: ignore[no-untyped-call]
    assert names >= {"inferact_requests", "inferact_oom_events"}


def test_a_request_counts_once_on_the_node_that_answered() -> None:
    """4xx and 5xx of a node count, refusals of ours and requests that nobody answered do not."""
    world = World(Live("a"), Live("b"))
    world.add(worker="a")
    world.add(worker="a", status=400, outcome="4xx")
    world.add(worker="b", status=500, outcome="5xx", retries=1)
    world.add(worker=None, status=503, outcome="rejected", first_byte=None)
    world.add(worker="b", status=502, outcome="5xx", first_byte=None)
    assert world.samples['inferact_requests_total{node="a",model="m"}'] == 2
    assert world.samples['inferact_requests_total{node="b",model="m"}'] == 1
    assert (world.metrics.total(), world.metrics.requests("a"), world.metrics.requests("b")) == (3, 2, 1)


def test_names_made_up_by_clients_are_no_labels() -> None:
    """A model that the node does not serve is the only one it has, or `other`."""
    world = World(Live("a"), Live("b", ("m", "k")))
    world.add(worker="a", model="made-up")
    world.add(worker="b", model="made-up")
    assert world.samples['inferact_requests_total{node="a",model="m"}'] == 1
    assert world.samples['inferact_requests_total{node="b",model="other"}'] == 1


def test_a_node_that_left_is_forgotten_but_counted() -> None:
    """Its series go, the sum of all requests stays."""
    world = World(Live("a"), Live("b"))
    world.add(worker="a")
    world.nodes.pop(0)
    world.bus.emit(WorkerChanged("a", "removed"))
    assert world.metrics.total() == 1
    assert not any('node="a"' in name for name in world.samples)


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (100, 99), (101, 100), (200, 198), (2048, 2028)])
def test_p99_is_the_nearest_rank(count: int, expected: int) -> None:
    """The value at position ceil(0.99·n) of the ascending list, in whole milliseconds."""
    latencies = Latencies()
    for number in range(count, 0, -1):
        latencies.add([0.0], [number / 1000])
    assert latencies.p99(1.0) == expected


def test_p99_is_of_five_minutes_and_2048_requests() -> None:
    """Older ones do not count; nothing is null."""
    latencies = Latencies()
    latencies.add([0.0], [9.0])
    latencies.add([200.0], [1.0])
    assert latencies.p99(299.0) == 9000
    assert latencies.p99(300.0) == 1000
    assert latencies.p99(500.0) is None
    for number in range(2049):
        latencies.add([600.0], [5.0 if not number else 1.0])
    assert latencies.p99(600.0) == 1000


def test_only_successes_have_a_latency() -> None:
    """An error that came at once does not make a node look fast."""
    world = World(Live("a"))
    world.add(worker="a", status=500, outcome="5xx", total=0.01)
    assert world.metrics.p99_ms("a") is None
    world.add(worker="a", total=0.82)
    assert world.metrics.p99_ms("a") == 820


def test_the_scheduler_stands_before_the_page_of_the_server() -> None:
    """Both are one page; the server's own end ends it."""

    class Page:
        def render(self, accept: str) -> tuple[bytes, str]:
            return b"# EOF\n", "application/openmetrics-text" if "openmetrics" in accept else "text/plain"

    body, kind = WithNodes(Page(), World(Live("a")).metrics).render("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    assert kind == "application/openmetrics-text"
    assert list(parse_openmetrics(body.decode()))  # type: ignore[no-untyped-call]
