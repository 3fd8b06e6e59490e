"""The routing proof: its page is committed, and its bars hold on a shorter run as well."""

from __future__ import annotations

from bench.scheduler_proof import LOAD, RESULT, adaptive, latencies, priorities
from bench.scheduler_sim import joint_capacity


def test_the_committed_page_has_no_missed_bar() -> None:
    """Every statement of the page was met when it was written."""
    page = RESULT.read_text(encoding="utf-8")
    assert "missed" not in page
    assert page.count("| met |") == 12


def test_cost_routing_is_faster_than_rotation_and_than_counting() -> None:
    """One minute of the same workload: p99 ≤ 0.6 × round-robin and ≤ 0.9 × least-loaded."""
    _lines, bars = latencies(LOAD * joint_capacity(), 60.0)
    assert [bar.met for bar in bars] == [True, True], bars


def test_caps_hold_and_nobody_starves_in_a_rush() -> None:
    """Never above a cap, high priorities first, everybody served."""
    _lines, bars = priorities(LOAD * joint_capacity(open_requests=16), 120.0)
    assert all(bar.met for bar in bars), bars


def test_adaptive_goes_on_and_off_when_it_should() -> None:
    """On at two fifths of a window of hits, off at seven tenths of misses."""
    _lines, bars = adaptive(8.0)
    assert all(bar.met for bar in bars), bars
