"""The numbers behind the metrics: plain integers and lists, aggregated a batch at a time.

A batch is cheaper than its requests one by one: sorting a list of durations and looking up the bounds in it
takes a fraction of what a look-up per duration would.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Final

from infera_cli.events import RequestDone
from infera_cli.telemetry.names import FIRST_TOKEN_BUCKETS, GAP_BUCKETS, REQUEST_BUCKETS
from infera_cli.telemetry.usage import read_all

SERVED_OUTCOMES = ("ok", "4xx", "5xx", "broken", "timeout", "client_gone")
_FEW: Final = 12


class Histogram:
    """Counts per bucket; `counts` has one more place than `bounds`, for what is above all of them."""

    __slots__ = ("bounds", "counts", "heads", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.heads: tuple[str, ...] = ()
        """What stands before each number on the page; written once, since it never changes."""
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value; a bound belongs to its own bucket."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_all(self, values: list[float]) -> None:
        """Count many values; sorts the list."""
        if len(values) < _FEW:
            for value in values:
                self.observe(value)
            return
        values.sort()
        self.total += sum(values)
        counts, before = self.counts, 0
        for place, bound in enumerate(self.bounds):
            after = bisect_right(values, bound, before)
            counts[place] += after - before
            before = after
        counts[-1] += len(values) - before


class Served:
    """What one worker did for one model."""

    __slots__ = ("cached", "completion", "duration", "first_token", "gap", "outcomes", "prompt", "retries")

    def __init__(self) -> None:
        self.outcomes = dict.fromkeys(SERVED_OUTCOMES, 0)
        self.duration = Histogram(REQUEST_BUCKETS)
        self.first_token = Histogram(FIRST_TOKEN_BUCKETS)
        self.gap = Histogram(GAP_BUCKETS)
        self.prompt = self.completion = self.cached = self.retries = 0

    def add(self, batch: Sequence[RequestDone]) -> None:
        """Count finished requests that reached the worker."""
        for outcome, count in Counter([done.outcome for done in batch]).items():
            self.outcomes[outcome] += count
        self.duration.observe_all([done.total for done in batch])
        self.retries += sum([done.retries for done in batch])
        streams = [done for done in batch if done.streamed and done.first_byte is not None]
        if streams:
            self._streams(streams)
        for prompt, completion, cached in read_all([done.tail for done in batch]):
            self.prompt += prompt
            self.completion += completion
            self.cached += cached

    def _streams(self, streams: Sequence[RequestDone]) -> None:
        self.first_token.observe_all([done.first_byte for done in streams if done.first_byte is not None])
        self.gap.observe_all([
            (done.total - done.first_byte) / (done.chunks - 1)
            for done in streams if done.chunks > 1 and done.first_byte is not None
        ])  # fmt: skip
