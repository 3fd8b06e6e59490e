"""Exit criteria of one's own: `--gate lag_p99:5 rate:0.99 truncated:0` (bench-and-cli §0.4).

Times in milliseconds, everything else as a share between 0 and 1. A class of failures is a share of the requests that
were judged, `token_mismatch` of the successes, `cached` and `hits` of the input tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from infera_cli.errors import ConfigError
from infera_cli.workload.figures import Figures

FAILURES = (
    "connect", "tls", "reset", "closed", "truncated", "empty", "malformed", "not_streamed", "not_sent", "error_event",
    "engine_abort", "timeout_connect", "timeout_first_token", "timeout_idle", "timeout_total",
)


class _Kind(NamedTuple):
    """How a figure is found, and which way it may go; `scale` from what is typed to what is measured."""

    read: Callable[[Figures, float], float | None]
    at_most: bool = True
    scale: float = 1.0


def _lag(name: str) -> Callable[[Figures, float], float | None]:
    return lambda figures, _cpu: getattr(figures.latency["lag"], name) if "lag" in figures.latency else None


def _cached(figures: Figures, _cpu: float) -> float | None:
    counts = figures.counts
    return (counts.cached_tokens or 0) / counts.input_tokens if counts.input_tokens else None


_KINDS = {
    "lag_p50": _Kind(_lag("p50"), scale=1e-3), "lag_p99": _Kind(_lag("p99"), scale=1e-3),
    "lag_max": _Kind(_lag("max"), scale=1e-3),
    "cpu": _Kind(lambda _figures, cpu: cpu),
    "rate": _Kind(lambda figures, _cpu: figures.achieved, at_most=False),
    "token_mismatch": _Kind(lambda f, _cpu: f.counts.tokens_wrong / f.counts.ok if f.counts.ok else None),
    "cached": _Kind(_cached), "hits": _Kind(_cached, at_most=False),
}


class Gate(msgspec.Struct, frozen=True):
    """One limit, as it was typed."""

    name: str
    limit: float

    def missed(self, figures: Figures, cpu: float) -> str:
        """What is wrong, in words; empty when the run keeps the limit. A figure that is not there keeps none."""
        kind = _KINDS.get(self.name) or _Kind(lambda found, _cpu: _share(found, self.name))
        found = kind.read(figures, cpu)
        if found is None:
            return f"{self.name} is not known, asked was {self.limit:g}"
        value = found / kind.scale
        kept = value <= self.limit if kind.at_most else value >= self.limit
        return "" if kept else f"{self.name} is {value:.4g}, asked was {'≤' if kind.at_most else '≥'} {self.limit:g}"


def parse(words: Iterable[str]) -> tuple[Gate, ...]:
    """Gates from `name:limit`. Raises ConfigError."""
    found = []
    for word in words:
        name, colon, number = word.partition(":")
        try:
            limit = float(number)
        except ValueError:
            limit = -1.0
        if not colon or not limit >= 0 or not _is_known(name):
            choices = ", ".join((*_KINDS, *FAILURES, "http_CODE"))
            raise ConfigError(f"{word!r} is no limit such as lag_p99:5 or truncated:0 ({choices})", param="--gate")
        found.append(Gate(name, limit))
    return tuple(found)


def _is_known(name: str) -> bool:
    head, _, code = name.partition("http_")
    return name in _KINDS or name in FAILURES or (not head and len(code) == 3 and code.isdecimal())


def _share(figures: Figures, failure: str) -> float | None:
    judged = figures.counts.ok + figures.counts.failed
    return figures.counts.failures.get(failure, 0) / judged if judged else None
