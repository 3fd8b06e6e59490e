"""Exit criteria of one's own: `--gate lag_p99:5 rate:0.99 truncated:0` (bench-and-cli §0.4).

Times in milliseconds, everything else as a share between 0 and 1. A class of failures is a share of the requests that
were judged, `token_mismatch` of the successes (another length than asked for, or usage that cannot be), `cached` and
`hits` of the input tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from infera_cli.errors import ConfigError, UsageError
from infera_cli.workload.cutoff import TIMEOUT
from infera_cli.workload.figures import Figures

FAILURES = (
    "connect", "tls", "reset", "closed", "truncated", "empty", "malformed", "not_streamed", "encoded", "not_sent",
    "error_event",
    "engine_abort", "timeout_connect", "timeout_first_token", "timeout_idle", "timeout_total", TIMEOUT,
)


class Seen(NamedTuple):
    """What limits are held against: the figures, the busiest process's share of a core, the share of the asked rate,
    and the share of prompts that the engines found cached by their own counters."""

    figures: Figures
    cpu: float
    achieved: float | None
    engine_hits: float | None = None


class _Kind(NamedTuple):
    """How a figure is found, and which way it may go; `scale` from what is typed to what is measured."""

    read: Callable[[Seen], float | None]
    at_most: bool = True
    scale: float = 1.0


def _lag(name: str) -> Callable[[Seen], float | None]:
    def read(seen: Seen) -> float | None:
        lag = seen.figures.latency.get("lag")
        return getattr(lag, name) if lag is not None else None

    return read


def hits(figures: Figures, by_engines: float | None) -> float | None:
    """The share of the input that was cached: as the answers say, or where they do not, by the engines' counters."""
    counts = figures.counts
    if counts.cached_tokens is None or not counts.input_tokens:
        return by_engines
    return counts.cached_tokens / counts.input_tokens


def _cached(seen: Seen) -> float | None:
    return hits(seen.figures, seen.engine_hits)


def _mismatch(seen: Seen) -> float | None:
    counts = seen.figures.counts
    wrong = counts.tokens_wrong + sum(counts.odd_usage.values())
    return wrong / counts.ok if counts.ok else None


_KINDS = {
    "lag_p50": _Kind(_lag("p50"), scale=1e-3), "lag_p99": _Kind(_lag("p99"), scale=1e-3),
    "lag_max": _Kind(_lag("max"), scale=1e-3),
    "cpu": _Kind(lambda seen: seen.cpu),
    "rate": _Kind(lambda seen: seen.achieved, at_most=False),
    "token_mismatch": _Kind(_mismatch), "cached": _Kind(_cached), "hits": _Kind(_cached, at_most=False),
}


class Gate(msgspec.Struct, frozen=True):
    """One limit, as it was typed."""

    name: str
    limit: float

    def missed(self, seen: Seen) -> str:
        """What is wrong, in words; empty when the run keeps the limit. A figure that is not there keeps none."""
        kind = _KINDS.get(self.name) or _Kind(lambda found: _share(found.figures, self.name))
        found = kind.read(seen)
        asked = f"asked was {'≤' if kind.at_most else '≥'} {self.limit:g}"
        if found is None:
            return f"{self.name} is not {'told by the server' if kind.read is _cached else 'known'}, {asked}"
        value = found / kind.scale
        kept = value <= self.limit if kind.at_most else value >= self.limit
        return "" if kept else f"{self.name} is {value:.4g}, {asked}"


def parse(words: Iterable[str]) -> tuple[Gate, ...]:
    """Gates from `name:limit`. Raises UsageError for what is none, ConfigError for a limit that cannot be."""
    return tuple(_parsed(word) for word in words)


def _parsed(word: str) -> Gate:
    name, colon, number = word.partition(":")
    try:
        limit = float(number)
    except ValueError:
        colon = ""
    if not colon or not _is_known(name):
        choices = ", ".join((*_KINDS, *FAILURES, "http_CODE"))
        raise UsageError(f"{word!r} is no limit such as lag_p99:5 or truncated:0 ({choices})", param="--gate")
    if name.startswith("lag_"):
        if not 0 <= limit < math.inf:
            raise ConfigError(f"--gate {word}: milliseconds are 0 or more", param="--gate")
    elif not 0 <= limit <= 1:
        raise ConfigError(f"--gate {word}: {name} is a share between 0 and 1", param="--gate")
    return Gate(name, limit)


def _is_known(name: str) -> bool:
    head, _, code = name.partition("http_")
    return name in _KINDS or name in FAILURES or (not head and len(code) == 3 and code.isdecimal())


def _share(figures: Figures, failure: str) -> float | None:
    judged = figures.counts.ok + figures.counts.failed
    return figures.counts.failures.get(failure, 0) / judged if judged else None
