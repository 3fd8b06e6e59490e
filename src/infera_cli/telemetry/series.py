"""The numbers behind the metrics: plain integers and lists, aggregated in batches."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from infera_cli.events import RequestDone
from infera_cli.telemetry.names import FIRST_TOKEN_BUCKETS, GAP_BUCKETS, REQUEST_BUCKETS
from infera_cli.telemetry.usage import read_usage

SERVED_OUTCOMES = ("ok", "4xx", "5xx", "broken", "timeout", "client_gone")


class Histogram:
    """Counts per bucket; `counts` has one more place than `bounds`, for what is above all of them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value; a bound belongs to its own bucket."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Served:
    """What one worker did for one model."""

    __slots__ = ("cached", "completion", "duration", "first_token", "gap", "outcomes", "prompt", "retries")

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(SERVED_OUTCOMES, 0)
        self.duration = Histogram(REQUEST_BUCKETS)
        self.first_token = Histogram(FIRST_TOKEN_BUCKETS)
        self.gap = Histogram(GAP_BUCKETS)
        self.prompt = self.completion = self.cached = self.retries = 0

    def add(self, done: RequestDone) -> None:
        """Count a finished request that reached a worker."""
        self.outcomes[done.outcome] += 1
        self.duration.observe(done.total)
        self.retries += done.retries
        if done.streamed and done.first_byte is not None:
            self.first_token.observe(done.first_byte)
            if done.chunks > 1:
                self.gap.observe((done.total - done.first_byte) / (done.chunks - 1))
        usage = read_usage(done.tail)
        if usage is not None:
            self.prompt += usage.prompt
            self.completion += usage.completion
            self.cached += usage.cached
