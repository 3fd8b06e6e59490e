"""How fast an engine is, read off a benchmark of it: what a simulation needs to stand for it.

A decode step of c sequences takes step + c · sequence, which is the time per output token at that concurrency; two
or more loads give both by least squares, one load leaves their ratio at that of the default engine. At the lightest
load the first token takes the wait for the step in progress (half of one), the prompt's own tokens, and a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from infera_cli.errors import ConfigError
from infera_cli.workload.figures import Figures
from infera_cli.workload.result import Document

SEQUENCE_SHARE = 0.1 / 8.0  # of a step, for each sequence in it, where one load cannot tell
STEPS_TO_FIRST = 1.5
DIFFERENT = 1.2             # loads whose concurrency differs less are one load
FASTEST = 10_000_000.0      # prompt tokens/s, where prompts cost nothing that can be seen


class Speed(msgspec.Struct, frozen=True):
    """The figures of `simulator.engine.Profile` that a benchmark tells; `loads` is from how many they were fitted."""

    prefill_rate: float
    step_ms: float
    sequence_ms: float
    loads: int


def calibrate(document: Document, origin: str) -> Speed:
    """Fit to all runs of `document`. Raises ConfigError where they hold no answers of two tokens or more."""
    runs = [run.figures for run in document.runs if "tpot" in run.figures.latency and "ttft" in run.figures.latency]
    if not runs:
        raise ConfigError(f"{origin} holds no streamed answer of two tokens or more to calibrate with")
    points = sorted((_per_worker(run), run.latency["tpot"].mean) for run in runs)
    step, sequence, loads = _line(points)
    lightest = min(runs, key=_per_worker)
    return Speed(_prefill(lightest, step), step * 1e3, sequence * 1e3, loads)


def _per_worker(figures: Figures) -> float:
    return figures.concurrency.mean / max(1, len(figures.workers))


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float, int]:
    """(step, sequence) in seconds, and the number of loads."""
    low, high = points[0][0], points[-1][0]
    if len(points) < 2 or high < DIFFERENT * low:
        load = sum(x for x, _y in points) / len(points)
        tpot = sum(y for _x, y in points) / len(points)
        step = tpot / (1 + SEQUENCE_SHARE * load)
        return step, step * SEQUENCE_SHARE, 1
    x_mean = sum(x for x, _y in points) / len(points)
    y_mean = sum(y for _x, y in points) / len(points)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in points) / sum((x - x_mean) ** 2 for x, _y in points)
    slope = min(max(slope, 0.0), y_mean / x_mean * 0.99)
    return y_mean - slope * x_mean, slope, len(points)


def _prefill(figures: Figures, step: float) -> float:
    counts = figures.counts
    computed = (counts.input_tokens - (counts.cached_tokens or 0)) / max(1, counts.ok)
    left = figures.latency["ttft"].p50 - STEPS_TO_FIRST * step
    if computed < 1:
        raise ConfigError("the benchmark says nothing of prompt tokens; calibrate with a server that sends usage")
    return min(computed / left, FASTEST) if left > 0 else FASTEST
