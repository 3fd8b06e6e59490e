"""The cost of a request on a node: every number of replica-router §2.5."""

from __future__ import annotations

import pytest

from infera_cli.protocol.hardware import HARDWARE
from infera_cli.routing.cost import CAP_ASSUMED, Speed, cost, pressure, step_seconds
from infera_cli.routing.work import Work


def speed(name: str) -> Speed:
    row = HARDWARE[name]
    return Speed.of(row.tflops, row.bandwidth_gbps, row.vram_gb)


SPEEDS = {name: speed(name) for name in HARDWARE} | {"custom-900": Speed.of(180, 900, 48)}
WORK = Work(params=8e9, prompt=1000, output=200)


@pytest.mark.parametrize(
    ("name", "prefill", "step", "total", "turns"),
    [
        ("h100-80g", 32.34, 6.823, 1396.9, 211), ("a100-80g", 102.56, 11.210, 2344.6, 109),
        ("a100-40g", 102.56, 14.699, 3042.4, 143), ("rtx-4090", 193.70, 22.676, 4728.9, 117),
        ("a6000", 206.72, 29.762, 6159.1, 144), ("custom-900", 177.78, 25.397, 5257.1, 143),
    ],
)  # fmt: skip
def test_check_values(name: str, prefill: float, step: float, total: float, turns: int) -> None:
    """An 8 B model, 1000 tokens in, 200 out, nobody else there: milliseconds of the table, all rows."""
    found = cost(WORK, SPEEDS[name], 0)
    assert found.prefill * 1000 == pytest.approx(prefill, abs=0.005)
    assert found.step * 1000 == pytest.approx(step, abs=0.0005)
    assert found.total * 1000 == pytest.approx(total, abs=0.05)
    assert round(SPEEDS[name].flops / SPEEDS[name].reads) == turns


def test_the_step_is_compute_bound_beyond_the_turn() -> None:
    """Below it weights are read once for everybody; above it the step grows with each request."""
    h100 = SPEEDS["h100-80g"]
    flat = [step_seconds(8e9, n, h100) / (1 + n / 32) for n in (0, 100, 209)]
    assert flat == pytest.approx([flat[0]] * 3)
    assert step_seconds(8e9, 421, h100) / (1 + 421 / 32) == pytest.approx(2 * flat[0], rel=0.01)


def test_a_loaded_h100_costs_as_much_as_an_idle_a100() -> None:
    """At 22 in flight the step has grown by 1 + 22/32, which makes up for the hardware."""
    assert cost(WORK, SPEEDS["h100-80g"], 22).total == pytest.approx(cost(WORK, SPEEDS["a100-80g"], 0).total, rel=0.02)
    assert cost(WORK, SPEEDS["h100-80g"], 16).step == pytest.approx(1.5 * cost(WORK, SPEEDS["h100-80g"], 0).step)


def test_known_prefixes_shorten_the_prefill_alone() -> None:
    """P − h tokens are computed, but at least one."""
    h100 = SPEEDS["h100-80g"]
    assert cost(WORK, h100, 0, held=750).prefill == pytest.approx(cost(WORK, h100, 0).prefill / 4)
    assert cost(WORK, h100, 0, held=1000).prefill == pytest.approx(cost(WORK, h100, 0).prefill / 1000)
    assert cost(WORK, h100, 0, held=750).step == cost(WORK, h100, 0).step


@pytest.mark.parametrize(("n", "cap", "times"), [(0, 4, 0.0), (3, 4, 0.0), (4, 4, 0.25), (7, 4, 1.0)])
def test_beyond_the_cap_a_place_is_waited_for(n: int, cap: int, times: float) -> None:
    """max(0, n + 1 − cap) ÷ cap services; without max_batch_size the cap is 256."""
    found = cost(WORK, SPEEDS["a6000"], n, cap=cap)
    assert found.queue == pytest.approx(times * found.service)
    assert CAP_ASSUMED == 256
    assert cost(WORK, SPEEDS["a6000"], 255).queue == 0
    assert cost(WORK, SPEEDS["a6000"], 256).queue > 0


@pytest.mark.parametrize(
    ("used", "threshold", "factor"),
    [(None, 0.9, 1), (0.5, 0.9, 1), (0.9, 0.9, 1), (0.95, 0.9, 2), (1.0, 0.9, 5), (1.0, 1.0, 1), (0.5, 0.0, 2)],
)
def test_pressure_rises_from_the_threshold_to_five(used: float | None, threshold: float, factor: float) -> None:
    """1 + 4·((u − θ)/(1 − θ))²; unknown is 0, θ = 1 is 1."""
    assert pressure(used, threshold) == pytest.approx(factor)


def test_degraded_is_twice_and_weight_divides() -> None:
    """State factor 2, and a weight of a half doubles the cost."""
    plain = cost(WORK, SPEEDS["a6000"], 0).total
    assert cost(WORK, SPEEDS["a6000"], 0, degraded=True).total == pytest.approx(2 * plain)
    assert cost(WORK, SPEEDS["a6000"], 0, weight=0.5).total == pytest.approx(2 * plain)
    assert cost(WORK, SPEEDS["a6000"], 0, pressure=3.0).total == pytest.approx(3 * plain)


def test_a_phase_counts_its_own_term() -> None:
    """Prefill nodes are compared by prefill, decode nodes by their steps (replica-router §2.9)."""
    whole = cost(WORK, SPEEDS["h100-80g"], 0)
    assert cost(WORK, SPEEDS["h100-80g"], 0, phase="prefill").total == pytest.approx(whole.prefill)
    assert cost(WORK, SPEEDS["h100-80g"], 0, phase="decode").total == pytest.approx(200 * whole.step)
