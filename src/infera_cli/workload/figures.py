"""What a run came to, as plain values (bench-and-cli §0.3, §A16)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from infera_cli.workload import windows
from infera_cli.workload.distribution import Distribution


class Rates(msgspec.Struct, frozen=True):
    """Per second. `overall_*` over the whole window, `steady_*` over the steady span (windows.py), where that is long
    enough a part of the window to say something."""

    window_s: float
    offered_requests: float | None
    sent_requests: float
    overall_requests: float
    between_completions: float | None
    overall_input_tokens: float | None      # None where the server does not tell the input
    overall_output_tokens: float
    peak_output_tokens: float
    steady_s: float
    steady_output_tokens: float | None
    goodput: float | None = None
    overall_tokens: float | None = None
    steady_requests: float | None = None
    steady_input_tokens: float | None = None
    achieved_requests: float | None = None      # arrivals, over the time that sending them took, or should have
    late_s: float = 0.0         # how much longer it took to send the arrivals than the plan says


class Counts(msgspec.Struct, frozen=True):
    """How many. `sources` tells who counted output tokens."""

    planned: int | None         # arrivals in the plan
    arrived: int                # of these, the first requests that were sent; turns that follow come on top
    sent: int
    ok: int
    failed: int
    incomplete: int
    not_sent: int
    failures: dict[str, int]
    examples: dict[str, str]    # what the first failure of each class said
    input_tokens: int | None    # None where the server does not tell it
    output_tokens: int
    cached_tokens: int | None
    sources: dict[str, int]
    tokens_wrong: int           # successes whose length differs from what --ignore-eos asked for
    unsent: int = 0             # still waiting for a place when the run ended
    resent: int = 0             # sent again, since the kept connection had just been closed
    odd_usage: dict[str, int] = {}      # successes whose usage cannot be, by what is wrong with it
    together: int = 0           # token events that were read together with the one before: their gap is 0


class Share(msgspec.Struct, frozen=True):
    """One worker's part."""

    worker: str
    requests: int
    failed: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    ttft_p50: float | None


class Attainment(msgspec.Struct, frozen=True):
    """How many of the judged requests met the limits."""

    limits: dict[str, float]    # seconds
    judged: int
    good: int
    met: dict[str, int]
    cut_off_missed: int = 0     # of the judged: cut off by the end of the run, with a limit missed by then
    cut_off_open: int = 0       # not judged: cut off by the end of the run, and could still have kept the limits


class Figures(msgspec.Struct, frozen=True):
    """All figures of one run; durations in seconds."""

    counts: Counts
    rates: Rates
    concurrency: windows.Concurrency
    latency: dict[str, Distribution]
    adjusted: dict[str, dict[str, float | None]]        # failures entered as infinite; None is infinite
    sizes: dict[str, Distribution]
    router: dict[str, Distribution]
    workers: tuple[Share, ...]
    attainment: Attainment | None
    batches: dict[str, tuple[float, ...]]
    points: tuple[tuple[float, float, float], ...]      # (sent, TTFT, E2EL)
    seconds: tuple[tuple[float, ...], ...]              # (second, sent, completed, failed, output tokens)


def achieved(halves: Sequence[Figures], planned: int | None) -> float | None:
    """The arrival rate that was reached, over the one that was asked for (bench-and-cli §0.4): how many of the
    `planned` arrivals were sent, and how long that took. None where nothing was planned.

    With --direct there are two `halves` of one plan.
    """
    if not planned:
        return None
    share = sum(half.counts.arrived for half in halves) / planned
    asked = sum(half.rates.offered_requests or 0.0 for half in halves)
    if not asked:
        return share
    return share * (planned / asked) / (planned / asked + late(halves))


def late(halves: Sequence[Figures]) -> float:
    """How many seconds longer it took to send the arrivals than the plan says."""
    return max((half.rates.late_s for half in halves), default=0.0)


def imbalance(workers: tuple[Share, ...]) -> float | None:
    """Requests of the busiest worker over the mean; 1 is even. None without workers."""
    counts = [worker.requests for worker in workers]
    total = sum(counts)
    return max(counts) * len(counts) / total if total else None
