"""Which requests were good enough: `--goodput ttft:300 tpot:30 e2el:3000`, in milliseconds.

A request is good when it succeeded and met every limit (≤). Goodput is good / window; attainment is
good / *sent*: a failure stays in the denominator. An answer of one token has TPOT 0 (bench-and-cli §0.3).

What the end of the run cut off (R158) is judged where it is certain what it came to: a limit that was missed by then
stays missed. A request that could still have kept them all is left out, and counted as such.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from infera_cli.errors import ConfigError, UsageError
from infera_cli.workload.sample import INCOMPLETE, Sample

KINDS = ("ttft", "ttft_sched", "tpot", "e2el", "e2el_sched")


class Slo(msgspec.Struct, frozen=True):
    """One limit in seconds."""

    kind: str
    limit: float

    def met(self, sample: Sample) -> bool:
        """Whether a request kept to it; one that failed, or lacks the figure, did not."""
        if not sample.ok:
            return False
        found = value(sample, self.kind)
        return found is not None and found <= self.limit

    def lost(self, sample: Sample) -> bool:
        """Whether a request that was cut off had missed it by then, whatever would have come."""
        return (least(sample, self.kind) or 0.0) > self.limit

    def held(self, sample: Sample) -> bool:
        """Whether a request that was cut off had kept to it by then, whatever would have come."""
        found = value(sample, self.kind) if self.kind.startswith("ttft") else None
        return found is not None and found <= self.limit


def parse(words: Iterable[str]) -> tuple[Slo, ...]:
    """Limits from `name:milliseconds`. Raises UsageError for what is none, ConfigError for a limit that cannot be."""
    return tuple(_parsed(word) for word in words)


def _parsed(word: str) -> Slo:
    kind, colon, number = word.partition(":")
    try:
        limit = float(number) / 1000
    except ValueError:
        colon = ""
    if not colon or kind not in KINDS:
        choices = ", ".join(KINDS)
        raise UsageError(f"{word!r} is no limit such as ttft:300 ({choices})", param="--goodput")
    if not 0 < limit < math.inf:
        raise ConfigError(f"--goodput {word}: milliseconds are above 0", param="--goodput")
    return Slo(kind, limit)


def value(sample: Sample, kind: str) -> float | None:
    """The figure `kind` of one request, in seconds; None where it has none."""
    if kind == "tpot":
        return tpot(sample, short=0.0)
    end = sample.first if kind.startswith("ttft") else sample.last
    start = sample.scheduled if kind.endswith("_sched") else sample.sent
    return None if end is None or start is None else end - start


def tpot(sample: Sample, short: float | None = None) -> float | None:
    """(last - first) / (N - 1) in seconds; `short` for answers of fewer than two tokens."""
    tokens, _source = sample.tokens()
    if tokens < 2:
        return short
    if sample.first is None or sample.last is None:
        return None
    return (sample.last - sample.first) / (tokens - 1)


def least(sample: Sample, kind: str) -> float | None:
    """What the figure `kind` of a request that was cut off would have come to at least; None where that is open.

    How many tokens there will be is known only where the length was set: TPOT as it is so far may still get better.
    """
    if kind == "tpot":
        return _least_tpot(sample)
    if kind.startswith("ttft") and sample.first is not None:
        return value(sample, kind)
    start = sample.scheduled if kind.endswith("_sched") else sample.sent
    return None if start is None else sample.end - start


def _least_tpot(sample: Sample) -> float | None:
    if sample.first is None or sample.wanted is None or sample.wanted < 2:
        return None
    tokens, source = sample.tokens()
    longest = sample.wanted if source == "chunks" else max(sample.wanted, tokens)
    if tokens >= sample.wanted and sample.last is not None:     # all came, only the stream was not closed
        return (sample.last - sample.first) / (longest - 1)
    return (sample.end - sample.first) / (longest - 1)


class Goodput:
    """Counts what met its limits; of what the end of the run cut off, `lost` had missed one and `open` had not yet."""

    def __init__(self, slos: tuple[Slo, ...]) -> None:
        self.slos = slos
        self.sent = self.good = self.lost = self.open = 0
        self.met = dict.fromkeys((slo.kind for slo in slos), 0)

    def add(self, sample: Sample) -> None:
        """One request; what was never sent is nobody's."""
        if sample.outcome == INCOMPLETE:
            self._cut_off(sample)
            return
        if not sample.ok and not sample.failed:
            return
        self.sent += 1
        kept = [slo.met(sample) for slo in self.slos]
        for slo, fine in zip(self.slos, kept, strict=True):
            self.met[slo.kind] += fine
        self.good += all(kept) and sample.ok

    def _cut_off(self, sample: Sample) -> None:
        if not any(slo.lost(sample) for slo in self.slos):
            self.open += 1
            return
        self.sent += 1
        self.lost += 1
        for slo in self.slos:
            self.met[slo.kind] += slo.held(sample)
