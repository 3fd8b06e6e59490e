"""How much the repetitions of a load differ: a line a load, for every form of a report (bench-and-cli §A15)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from infera_cli.report import rows
from infera_cli.workload.comparison import spread
from infera_cli.workload.figures import Figures
from infera_cli.workload.result import Document

TITLE = "repetitions: mean ± half of its 95 % interval; latencies in ms"
HEADS = ("", "runs", "req/s", "out tok/s", "TTFT p50", "TTFT p99", "TPOT p50", "E2EL p99")
SPARE = (6, 5, 3, 7)    # what a narrow terminal does without


def lines(document: Document) -> Iterator[tuple[str, ...]]:
    """The cells of HEADS for every load that ran more than once; what was cut off is no repetition."""
    for cell, runs in document.cells().items():
        whole = [run.figures for run in runs if not run.partial]
        if len(whole) > 1:
            yield cell or "run", str(len(whole)), *(_spread(whole, read) for read in _READ)


def _latency(key: str, name: str) -> Callable[[Figures], float | None]:
    def read(figures: Figures) -> float | None:
        found = figures.latency.get(key)
        return getattr(found, name) * 1e3 if found is not None else None

    return read


_READ: tuple[Callable[[Figures], float | None], ...] = (
    lambda figures: figures.rates.overall_requests, lambda figures: figures.rates.overall_output_tokens,
    _latency("ttft", "p50"), _latency("ttft", "p99"), _latency("tpot", "p50"), _latency("e2el", "p99"),
)


def _spread(runs: Sequence[Figures], read: Callable[[Figures], float | None]) -> str:
    values = [value for run in runs if (value := read(run)) is not None]
    if len(values) < len(runs):
        return "-"      # a run without it: the others are not all repetitions
    found = spread(values)
    return f"{rows.number(found.mean)} ± {rows.number(found.half_width)}"
