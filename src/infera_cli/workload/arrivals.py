"""When requests are due: absolute plans, in seconds from the start of the load.

Every open-loop plan is one unit-rate process (even steps, or gamma gaps) sent through the inverse of the
expected number of arrivals Λ(t). A constant rate, a ramp and their bursty forms are then the same few
lines. A plan is drawn for exactly N arrivals and stretched to the span in which N are expected, as
`vllm bench serve` does; for Poisson that is the process conditioned on N, so it stays exact. With a duration N is
rounded down, so that the span lies within it: an arrival after the last moment would never be sent.
(bench-and-cli §A1 "Arrivals", §B5.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Literal

import msgspec

from infera_cli.errors import ConfigError

RampShape = Literal["linear", "exponential"]
FASTEST = 1e6           # requests/s; what one machine sends is far below
ROUNDING = 1e-12        # of a product: 0.29 × 100 is meant to be 29
LONGEST = 100_000_000   # arrivals; walking through so many takes a minute
BURSTIEST = 0.01        # shape of the gaps; below it most of them are smaller than any number
SMOOTHEST = 1e6         # above it gaps are as good as constant, and drawing one may never end


class Ramp(msgspec.Struct, frozen=True):
    """A rate that moves from `start` to `end` (requests/s) over the whole plan."""

    start: float
    end: float
    shape: RampShape = "linear"

    def mean(self) -> float:
        """Mean rate over the whole ramp."""
        if self.start == self.end:
            return self.start
        if self.shape == "linear":
            return (self.start + self.end) / 2
        return (self.end - self.start) / math.log(self.end / self.start)

    def when(self, expected: float, span: float) -> float:
        """The time at which `expected` arrivals are expected, for a ramp that takes `span` seconds."""
        change = self.end - self.start
        if change == 0:
            return expected / self.start
        if self.shape == "exponential":
            growth = math.log(self.end / self.start) / span
            return math.log1p(expected * growth / self.start) / growth
        slope = change / span
        root = math.sqrt(max(self.start**2 + 2 * slope * expected, 0.0))
        return 2 * expected / (self.start + root)


class OpenLoop(msgspec.Struct, frozen=True, tag="open"):
    """Arrivals that do not wait for answers.

    `rate` in requests/s (inf: all at once); `burstiness` is the gamma shape: 1 Poisson, below 1 bursty,
    inf constant. Exactly one of `count` and `duration` (seconds) says how long; with both, the earlier end.
    """

    rate: float
    burstiness: float = 1.0
    count: int | None = None
    duration: float | None = None
    ramp: Ramp | None = None


class Replay(msgspec.Struct, frozen=True, tag="replay"):
    """Arrivals at the times the trace gives, `speed` times faster; `count`/`duration` cut it short."""

    speed: float = 1.0
    count: int | None = None
    duration: float | None = None


class ClosedLoop(msgspec.Struct, frozen=True, tag="closed"):
    """`concurrency` callers, each sending its next request `think` seconds after the last was answered."""

    concurrency: int
    think: float = 0.0
    count: int | None = None
    duration: float | None = None


Arrivals = OpenLoop | Replay | ClosedLoop


def check(arrivals: Arrivals) -> None:
    """Refuse impossible plans. Raises ConfigError."""
    if arrivals.count is not None and arrivals.count < 1:
        raise ConfigError("the number of requests must be at least 1", param="--num-prompts")
    if arrivals.duration is not None and not 0 < arrivals.duration < math.inf:
        raise ConfigError("the duration must be a positive number of seconds", param="--duration")
    if isinstance(arrivals, Replay):
        if not 0 < arrivals.speed < math.inf:
            raise ConfigError("the replay speed must be a positive number", param="--speed")
        return
    if arrivals.count is None and arrivals.duration is None:
        raise ConfigError("say how long: a number of requests (-n) or a duration (-d)")
    if isinstance(arrivals, ClosedLoop):
        if arrivals.concurrency < 1:
            raise ConfigError("the concurrency must be at least 1", param="--concurrency")
        return
    _check_open(arrivals)


def _check_open(plan: OpenLoop) -> None:
    if not plan.rate > 0:
        raise ConfigError("the request rate must be above 0 (inf: all at once)", param="--request-rate")
    if not BURSTIEST <= plan.burstiness <= SMOOTHEST and plan.burstiness != math.inf:
        said = f"--burstiness is between {BURSTIEST:g} and {SMOOTHEST:,.0f} (1 Poisson, inf constant)"
        raise ConfigError(f"{said}, not {plan.burstiness:g}", param="--burstiness")
    if plan.ramp is None and plan.rate == math.inf and plan.count is None:
        raise ConfigError("with an infinite rate give the number of requests (-n)", param="--request-rate")
    if plan.ramp is not None and not (0 < plan.ramp.start < math.inf and 0 < plan.ramp.end < math.inf):
        raise ConfigError("both ends of a ramp must be finite and above 0", param="--ramp-up-start-rps")
    fastest = max(plan.ramp.start, plan.ramp.end) if plan.ramp is not None else plan.rate
    if FASTEST < fastest < math.inf:
        said = f"{_figure(fastest)} requests/s are more than can be sent (at most {FASTEST:,.0f}; inf: all at once)"
        raise ConfigError(said, param="--request-rate" if plan.ramp is None else "--ramp-up-end-rps")
    if planned(plan) > LONGEST:
        raise ConfigError(f"this plan has {_figure(planned(plan))} requests; at most {LONGEST:,} can be planned")
    if planned(plan) < 1:
        raise ConfigError("at this rate not one request is due within the duration", param="--request-rate")


def _figure(value: float) -> str:
    """A number as people read it, a huge one by its power of ten."""
    return f"{value:,.0f}" if value < 1e15 else f"{float(value):g}"


def planned(plan: OpenLoop) -> int:
    """How many arrivals the plan holds: with a duration, as many whole ones as are due within it."""
    rate = plan.ramp.mean() if plan.ramp else plan.rate
    if plan.duration is None or rate == math.inf:
        return plan.count or 0
    fitting = math.floor(rate * plan.duration * (1 + ROUNDING))
    return fitting if plan.count is None else min(plan.count, fitting)


def span(plan: OpenLoop) -> float:
    """The seconds the plan takes: the time in which its arrivals are expected at its rate."""
    rate = plan.ramp.mean() if plan.ramp else plan.rate
    return 0.0 if rate == math.inf else min(planned(plan) / rate, _end(plan))


def _end(plan: OpenLoop) -> float:
    return math.inf if plan.duration is None else plan.duration


def offsets(plan: OpenLoop, seed: int) -> Iterator[float]:
    """The due times in seconds from the start, rising, none after the duration; the same for the same seed."""
    count = planned(plan)
    if plan.ramp is None and plan.rate == math.inf:
        yield from (0.0 for _ in range(count))
        return
    ramp = plan.ramp or Ramp(plan.rate, plan.rate)
    length, end = span(plan), _end(plan)
    for expected in _unit_process(count, plan.burstiness, seed):
        yield min(ramp.when(expected, length), end)


def _unit_process(count: int, burstiness: float, seed: int) -> Iterator[float]:
    """`count` arrivals of mean rate 1 within [0, count); two walks over the same dice instead of a list."""
    if burstiness == math.inf:
        yield from (float(step) for step in range(count))
        return
    total = sum(_gaps(count + 1, burstiness, seed)) or 1.0      # so bursty that all come at once
    at = 0.0
    for gap in _gaps(count, burstiness, seed):
        at += gap
        yield at * count / total


def _gaps(count: int, burstiness: float, seed: int) -> Iterator[float]:
    dice = Random(seed)  # noqa: S311  # arrivals, not secrets
    if burstiness == 1.0:
        yield from (dice.expovariate(1.0) for _ in range(count))
    else:
        yield from (dice.gammavariate(burstiness, 1 / burstiness) for _ in range(count))


def split(plan: ClosedLoop, worker: int, workers: int) -> int:
    """How many of the callers load process `worker` (from 0) of `workers` runs."""
    share, rest = divmod(plan.concurrency, workers)
    return share + (1 if worker < rest else 0)
