"""How fast an engine is, read off a benchmark of it: what a simulation needs to stand for it.

`calibrate` reads it off the figures. A decode step of c sequences takes step + c · sequence, which is the time per
output token at that concurrency; two or more loads give both by least squares, one load leaves their ratio at that of
the default engine. At the lightest load the first token takes the prompt's own tokens and a step, and half a step of
waiting where another request keeps the engine busy.

That counts the prompts computed between two tokens as if decoding took so long, so it is a first guess. `refine` makes
the guess good: it simulates the very loads that were measured, and changes the engine until they come out the same
(Levenberg and Marquardt's method on the logarithms, so that every figure counts by its share).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from infera_cli.errors import ConfigError
from infera_cli.workload.distribution import Distribution
from infera_cli.workload.figures import Figures
from infera_cli.workload.result import Document, Run

SEQUENCE_SHARE = 0.1 / 8.0  # of a step, for each sequence in it, where one load cannot tell
DIFFERENT = 1.2             # loads whose concurrency differs less are one load
FASTEST = 10_000_000.0      # prompt tokens/s, where prompts cost nothing that can be seen
CLOSE = 0.01                # a figure this near to the measured one needs no more work
ROUNDS, TRIES = 6, 3        # changes of the engine at most, and shorter ones where one made it worse
ENOUGH = 0.95               # of the squared errors: where a round leaves more, a next one is not worth it
NUDGE = 0.05                # by which a figure of the engine is moved to see what follows
FARTHEST = 1.0              # most that one round changes a figure of the engine, as a logarithm

Times = tuple[float, ...]
"""Mean and p50 of TTFT, TPOT and E2EL of one load."""


class Speed(msgspec.Struct, frozen=True):
    """The figures of `simulator.engine.Profile` that a benchmark tells; `loads` is from how many they were fitted."""

    prefill_rate: float
    step_ms: float
    sequence_ms: float
    loads: int


def usable(document: Document, origin: str) -> list[Run]:
    """The runs that hold answers of two tokens or more. Raises ConfigError where there are none."""
    runs = [run for run in document.runs if {"ttft", "tpot", "e2el"} <= run.figures.latency.keys()]
    if not runs:
        raise ConfigError(f"{origin} holds no streamed answer of two tokens or more to calibrate with")
    return runs


def times(latency: Mapping[str, Distribution]) -> Times:
    """What of a load, measured or simulated, is to come out the same."""
    return tuple(
        getattr(latency[kind], name) for kind in ("ttft", "tpot", "e2el") for name in ("mean", "p50")
    )


def computed(figures: Figures) -> float:
    """Prompt tokens that an answer cost, those found in a cache left out."""
    counts = figures.counts
    return ((counts.input_tokens or 0) - (counts.cached_tokens or 0)) / max(1, counts.ok)


def calibrate(document: Document, origin: str) -> Speed:
    """A first guess from all runs of `document`. Raises ConfigError where they hold no such answers."""
    runs = [run.figures for run in usable(document, origin)]
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
    tokens, others = computed(figures), min(1.0, max(0.0, _per_worker(figures) - 1))
    left = figures.latency["ttft"].p50 - (1 + others / 2) * step
    if tokens < 1:
        raise ConfigError("the benchmark says nothing of prompt tokens; calibrate with a server that sends usage")
    return min(tokens / left, FASTEST) if left > 0 else FASTEST


# ── until the simulation shows what was measured ─────────────────────────────────────────────────────
Simulate = Callable[[Speed], Sequence[Times]]


def refine(guess: Speed, measured: Sequence[Times], simulate: Simulate) -> tuple[Speed, float]:
    """The engine with which `simulate` shows what was `measured`, and by which share the worst figure is still apart;
    the same for the same loads."""
    wanted = [value for load in measured for value in load]

    def apart(engine: list[float]) -> list[float]:
        shown = [value for load in simulate(_speed(engine, guess.loads)) for value in load]
        return [math.log(max(value, 1e-9) / want) for value, want in zip(shown, wanted, strict=True)]

    engine = _logarithms(guess)
    errors, damping = apart(engine), 1e-3
    for _ in range(ROUNDS):
        if max(map(abs, errors)) < CLOSE:
            break
        slopes = [_slope(apart, engine, errors, place) for place in range(len(engine))]
        before = _cost(errors)
        for _ in range(TRIES):
            tried = [old + min(max(change, -FARTHEST), FARTHEST)
                     for old, change in zip(engine, _change(slopes, errors, damping), strict=True)]
            found = apart(tried)
            if _cost(found) < before:
                engine, errors, damping = tried, found, damping / 10
                break
            damping *= 30
        if _cost(errors) > ENOUGH * before:
            break
    return _speed(engine, guess.loads), max(abs(math.expm1(error)) for error in errors)


def _logarithms(guess: Speed) -> list[float]:
    found = [-math.log(guess.prefill_rate), math.log(guess.step_ms)]
    if guess.loads > 1:
        found.append(math.log(max(guess.sequence_ms, guess.step_ms * SEQUENCE_SHARE / 10)))
    return found


def _speed(engine: Sequence[float], loads: int) -> Speed:
    rate, step = min(math.exp(-engine[0]), FASTEST), math.exp(engine[1])
    sequence = math.exp(engine[2]) if len(engine) > 2 else step * SEQUENCE_SHARE
    return Speed(rate, step, sequence, loads)


def _cost(errors: Sequence[float]) -> float:
    return sum(error**2 for error in errors)


def _slope(
    apart: Callable[[list[float]], list[float]], engine: list[float], errors: list[float], place: int
) -> list[float]:
    moved = [value + NUDGE * (at == place) for at, value in enumerate(engine)]
    return [(after - before) / NUDGE for after, before in zip(apart(moved), errors, strict=True)]


def _product(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def _change(slopes: Sequence[Sequence[float]], errors: Sequence[float], damping: float) -> list[float]:
    """What brings the errors down the most, by the slopes; the more damping, the shorter."""
    rows = []
    for place, slope in enumerate(slopes):
        row = [_product(slope, other) for other in slopes]
        row[place] += damping * row[place] + 1e-6
        rows.append([*row, -_product(slope, errors)])
    return _solved(rows)


def _solved(rows: list[list[float]]) -> list[float]:
    """Gauss's elimination; the diagonal of such a matrix is never 0."""
    size = len(rows)
    for place in range(size):
        head = rows[place]
        for below in rows[place + 1 :]:
            share = below[place] / head[place]
            below[:] = [value - share * over for value, over in zip(below, head, strict=True)]
    found = [0.0] * size
    for place in reversed(range(size)):
        known = sum(rows[place][other] * found[other] for other in range(place + 1, size))
        found[place] = (rows[place][size] - known) / rows[place][place]
    return found
