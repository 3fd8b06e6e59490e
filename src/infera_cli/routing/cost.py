"""What a request would cost on a node, in seconds (replica-router §2.5).

prefill = 2·N·max(P − h, 1) / F; step = max(2·N / M, 2·N·(n + 1) / F) · (1 + n / 32); service = prefill + O·step;
queue = max(0, n + 1 − cap) / cap · service; cost = (service + queue) · pressure · state / weight.
"""

from __future__ import annotations

from typing import NamedTuple

from infera_cli.routing.work import Work

COMPUTE_SHARE = 0.5
MEMORY_SHARE = 0.7
CAP_ASSUMED = 256
LOAD_SCALE = 32
DEGRADED_FACTOR = 2.0
HOLDER_MARGIN = 1.5
"""A node that holds the prefix wins unless it costs more than so many times the cheapest (§2.6)."""
TIE = 1.01
"""Nodes within 1 % of the smallest cost compete on load."""


class Speed(NamedTuple):
    """What a device really reaches: operations and bytes a second, and its memory in gigabytes."""

    flops: float
    reads: float
    vram_gb: float

    @classmethod
    def of(cls, tflops: float, bandwidth_gbps: float, vram_gb: float) -> Speed:
        """From a vendor's peak figures."""
        return cls(tflops * 1e12 * COMPUTE_SHARE, bandwidth_gbps * 1e9 * MEMORY_SHARE, vram_gb)


class Cost(NamedTuple):
    """The parts of a cost. Times are seconds; `total` has pressure, state and weight in it."""

    prefill: float
    step: float
    service: float
    queue: float
    pressure: float
    state: float
    weight: float
    total: float


def prefill_seconds(work: Work, held: int, speed: Speed) -> float:
    """Computing the prompt less what the node holds of it."""
    return 2 * work.params * max(work.prompt - held, 1) / speed.flops


def step_seconds(params: float, open_requests: int, speed: Speed) -> float:
    """One token for everybody there and for one more: weights read once, or compute bound; then the load."""
    weights, compute = 2 * params / speed.reads, 2 * params * (open_requests + 1) / speed.flops
    return (max(compute, weights)) * (1 + open_requests / LOAD_SCALE)


def pressure(used: float | None, threshold: float) -> float:
    """1, rising to 5 as the KV cache fills from the threshold to the brim; 1 where it is not known."""
    if used is None or used <= threshold or threshold >= 1:
        return 1.0
    return 1 + 4 * ((used - threshold) / (1 - threshold)) ** 2


def cost(
    work: Work, speed: Speed, open_requests: int, *, held: int = 0, cap: int | None = None,
    pressure: float = 1.0, degraded: bool = False, weight: float = 1.0, phase: str = "both",
) -> Cost:  # fmt: skip
    """The cost of `work` beside `open_requests` others; `held` are tokens of its prefix that the node has.

    `phase` restricts it to its prefill or its decode term (§2.9). `weight` must be above 0.
    """
    most = cap or CAP_ASSUMED
    prefill = prefill_seconds(work, held, speed) if phase != "decode" else 0.0
    step = step_seconds(work.params, open_requests, speed) if phase != "prefill" else 0.0
    service = prefill + work.output * step
    queue = max(0, open_requests + 1 - most) / most * service
    state = DEGRADED_FACTOR if degraded else 1.0
    return Cost(
        prefill, step, service, queue, pressure, state, weight, (service + queue) * pressure * state / weight
    )
