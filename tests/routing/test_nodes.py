"""Nodes as the scheduler knows them: states, caps, memory (replica-router §2.6, §2.10, §2.12)."""

from __future__ import annotations

import pytest

from infera_cli.routing.cost import Speed, cost, pressure
from infera_cli.routing.nodes import Measured, Node, NodeProfile, Nodes, Rules
from infera_cli.routing.types import Worker, WorkerSpec
from infera_cli.routing.work import Work

SPEED = Speed.of(312, 2039, 80)


def worker(name: str = "a", number: int = 0) -> Worker:
    return Worker(WorkerSpec(id=name, host="h", port=1), number)


def node(cap: int | None = None) -> Node:
    return Node(worker(), NodeProfile(speed=SPEED, cap=cap))


def measured(at: float, used: float | None, *, size: int | None = None, waiting: int | None = None) -> Measured:
    return Measured(at=at, kv_used=used, cache_tokens=size, waiting=waiting)


# ── degraded ─────────────────────────────────────────────────────────────────────────────────────────
def test_three_scrapes_in_a_row_over_the_threshold_degrade() -> None:
    """Two do not; one below begins the count anew."""
    one = node()
    for at in (0, 5):
        one.measure(measured(at, 0.95), 0.9)
    assert not one.degraded(5)
    one.measure(measured(10, 0.95), 0.9)
    assert one.degraded(10)
    one.measure(measured(15, 0.9), 0.9)
    assert not one.degraded(15)


def test_a_fifth_of_failures_among_five_requests_degrades() -> None:
    """20 % within 60 s, once there are five requests; older ones are forgotten."""
    one = node()
    for _ in range(3):
        one.outcome(True, 0.0)
    one.outcome(False, 0.0)
    assert not one.degraded(0.0)
    one.outcome(True, 0.0)
    assert one.degraded(0.0)
    one.outcome(True, 1.0)
    assert not one.degraded(1.0)       # 1 of 6
    one.outcome(False, 2.0)
    assert one.degraded(2.0)           # 2 of 7
    assert not one.degraded(62.0)


def test_metrics_older_than_thirty_seconds_are_unknown() -> None:
    """What an engine said half a minute ago says nothing."""
    one = node()
    one.measure(measured(0.0, 0.5), 0.9)
    assert one.kv_used(30.0) == 0.5
    assert one.kv_used(30.1) is None


# ── out of memory ────────────────────────────────────────────────────────────────────────────────────
def test_an_out_of_memory_degrades_for_thirty_seconds_and_halves_the_cap() -> None:
    """At least one request stays allowed; one more for each 30 s, until it is back."""
    one = node(cap=16)
    assert one.out_of_memory(10, 100.0) is None
    assert one.degraded(129.9)
    assert not one.degraded(130.0)
    assert [one.cap(at) for at in (100.0, 129.9, 130.0, 190.0, 339.9, 340.0, 1e6)] == [8, 8, 9, 11, 15, 16, 16]
    small = node(cap=1)
    small.out_of_memory(1, 0.0)
    assert small.cap(0.0) == 1


def test_without_a_cap_half_of_what_was_open_is_the_cap_for_a_while() -> None:
    """The engine decided until then; it decides again once the cap has grown to what was open."""
    one = node()
    one.out_of_memory(6, 0.0)
    assert [one.cap(at) for at in (0.0, 30.0, 60.0, 89.9, 90.0)] == [3, 4, 5, 5, None]


def test_twice_within_a_minute_is_offline_until_the_cooldown_is_over() -> None:
    """The second time says until when; more than a minute apart are two single ones."""
    one = node(cap=16)
    assert one.out_of_memory(8, 0.0) is None
    assert one.out_of_memory(8, 60.0) == 90.0
    assert one.cap(60.0) == 5          # half of the ten that it had grown to
    assert one.out_of_memory(8, 120.1) is None


def test_memory_is_suspected_only_of_a_full_cache() -> None:
    """A bare 500 at 95 % or more is worth a line in the log."""
    one = node()
    one.measure(measured(0.0, 0.94), 0.9)
    one.suspect(1.0)
    assert one.suspected_at < 0
    one.measure(measured(2.0, 0.95), 0.9)
    one.suspect(3.0)
    assert one.suspected_at == 3.0


# ── full ─────────────────────────────────────────────────────────────────────────────────────────────
def test_a_node_is_full_at_its_cap() -> None:
    """Not before; without max_batch_size never."""
    assert node(cap=4).full(Work(), 3, 0.0, 1.0) is None
    assert node(cap=4).full(Work(), 4, 0.0, 1.0) == "at its cap of 4"
    assert node().full(Work(), 10_000, 0.0, 1.0) is None


def test_a_node_that_would_have_to_preempt_is_full() -> None:
    """Prompt and expected answer, beside what is held: more than the cache has means waiting elsewhere."""
    one = node()
    one.measure(measured(0.0, 0.5, size=10_000), 0.9)
    fits, too_large = Work(prompt=4000, output=1000), Work(prompt=4001, output=1000)
    assert one.full(fits, 1, 0.0, 1.0) is None
    assert one.full(too_large, 1, 0.0, 1.0) == "would have to preempt: 10001 of 10000 tokens"
    assert one.full(fits, 1, 0.0, 0.9) is not None
    assert one.full(too_large, 1, 0.0, 0) is None


def test_own_requests_count_before_the_engine_reports_them() -> None:
    """R178: what was sent since the last scrape is known without a scrape."""
    one = node()
    one.measure(measured(0.0, 0.0, size=10_000), 0.9)
    one.tokens = 9000
    assert one.full(Work(prompt=1000, output=1), 3, 0.0, 1.0) is not None
    assert one.full(Work(prompt=1000, output=1), 3, 100.0, 1.0) is not None


def test_what_the_node_holds_of_a_prompt_takes_no_room() -> None:
    """A known prefix is in the cache already."""
    one = node()
    one.measure(measured(0.0, 0.9, size=10_000), 0.9)
    work = Work(prompt=2000, output=500)
    assert one.full(work, 1, 0.0, 1.0) is not None
    work.known = {0: 1800}
    assert one.full(work, 1, 0.0, 1.0) is None


def test_an_idle_node_takes_anything() -> None:
    """A request too large for every cache is the engine's to refuse, not to wait for ever."""
    one = node()
    one.measure(measured(0.0, 0.0, size=100), 0.9)
    assert one.full(Work(prompt=5000), 0, 0.0, 1.0) is None


def test_without_a_known_size_a_full_cache_with_waiting_requests_is_full() -> None:
    """Usage at the limit and a queue inside the engine; either alone is not enough."""
    one = node()
    one.measure(measured(0.0, 1.0, waiting=2), 0.9)
    assert one.full(Work(), 1, 0.0, 1.0) == "its cache is 100% full and requests wait"
    one.measure(measured(1.0, 1.0, waiting=0), 0.9)
    assert one.full(Work(), 1, 1.0, 1.0) is None
    one.measure(measured(2.0, 0.5, waiting=2), 0.9)
    assert one.full(Work(), 1, 2.0, 1.0) is None


# ── all nodes ────────────────────────────────────────────────────────────────────────────────────────
def test_unknown_workers_get_the_assumed_profile() -> None:
    """Fleets without a node file are alike, so that only load tells them apart."""
    nodes = Nodes(NodeProfile(speed=SPEED), {"b": NodeProfile(speed=SPEED, weight=0.5)})
    assert nodes.of(worker("a")).profile.weight == 1.0
    assert nodes.of(worker("b", 1)).profile.weight == 0.5


def test_a_reload_changes_profiles_in_place() -> None:
    """Weights and caps change, what was measured stays; how batches are formed takes a restart."""
    nodes = Nodes(NodeProfile(speed=SPEED), {"a": NodeProfile(speed=SPEED)}, Rules(static=True))
    here = worker("a")
    before = nodes.of(here)
    before.tokens = 7
    nodes.configure({"a": NodeProfile(speed=SPEED, weight=0.2)}, Rules(threshold=0.5))
    assert nodes.of(here) is before
    assert (before.profile.weight, before.tokens) == (0.2, 7)
    assert (nodes.rules.threshold, nodes.rules.static) == (0.5, True)


@pytest.mark.parametrize("forget", ["cleared", "left"])
def test_what_a_node_held_is_forgotten(forget: str) -> None:
    """Offline, restarted or gone: its prefixes are not looked for there."""
    nodes = Nodes(NodeProfile(speed=SPEED))
    here = worker("a", 3)
    nodes.of(here)
    nodes.residency.learn(3, Work(chain=(1,), sizes=(5,)))
    getattr(nodes, forget)("a")
    assert nodes.residency.known((1,)) == {}


def test_over_the_threshold_old_prefixes_are_shed() -> None:
    """A scrape above eviction_threshold_pct forgets the oldest tenth of what is not pinned."""
    nodes = Nodes(NodeProfile(speed=SPEED), rules=Rules(threshold=0.8))
    here = worker("a", 0)
    for name in range(10):
        nodes.residency.learn(0, Work(chain=(name,), sizes=(5,)))
    nodes.measure(here, measured(50.0, 0.8))
    assert nodes.residency.count(0) == 10
    nodes.measure(here, measured(55.0, 0.81))
    assert nodes.residency.count(0) == 9


@pytest.mark.parametrize("degraded", [False, True])
@pytest.mark.parametrize("used", [None, 0.5, 0.97])
@pytest.mark.parametrize(
    ("open_requests", "cap", "held"), [(0, None, 0), (7, None, 300), (9, 4, 999), (300, None, 1000)]
)
def test_the_price_is_the_cost(
    open_requests: int, cap: int | None, held: int, used: float | None, degraded: bool
) -> None:
    """What decisions compare is what explanations show, to the last bit that matters."""
    one = Node(worker(), NodeProfile(speed=SPEED, cap=cap, weight=0.7))
    work = Work(params=8e9, prompt=1000, output=77)
    if used is not None:
        one.measure(measured(0.0, used), 0.9)
    for _ in range(5 if degraded else 0):
        one.outcome(False, 0.0)
    shown = cost(
        work, SPEED, open_requests, held=held, cap=cap, pressure=pressure(used, 0.9), degraded=degraded, weight=0.7)
    assert one.price(work, held, open_requests, 1.0, 0.9) == pytest.approx(shown.total)
