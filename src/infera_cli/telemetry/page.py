"""Writes the two text formats of Prometheus.

prometheus_client can do this too, at several microseconds a sample; with hundreds of workers a scrape would
hold up the event loop for a tenth of a second. Here a sample costs a fraction of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from infera_cli.telemetry.names import Family
from infera_cli.telemetry.series import Histogram

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def labels(names: Sequence[str], values: Sequence[str]) -> str:
    """`a="1",b="2"`, ready to stand between braces."""
    return ",".join(f'{n}="{v.translate(_ESCAPES)}"' for n, v in zip(names, values, strict=True))


class Page:
    """Collects lines; call `family` before its samples. The caller ends an OpenMetrics page."""

    def __init__(self, *, openmetrics: bool) -> None:
        self._openmetrics = openmetrics
        self._lines: list[str] = []
        self._name = ""

    def family(self, family: Family) -> None:
        """Begin a metric."""
        self._name = family.name
        shown = family.name.removesuffix("_total") if self._openmetrics else family.name
        self._lines.append(f"# HELP {shown} {family.help}\n# TYPE {shown} {family.kind}\n")

    def sample(self, pairs: str, value: float) -> None:
        """One number of the current metric."""
        self._lines.append(f"{self._name}{{{pairs}}} {value}\n" if pairs else f"{self._name} {value}\n")

    def histogram(self, pairs: str, histogram: Histogram) -> None:
        """All buckets, cumulated, then sum and count."""
        heads = histogram.heads
        if not heads:
            heads = histogram.heads = _heads(self._name, pairs, histogram.bounds)
        running = list(accumulate(histogram.counts))
        numbers = (*running, histogram.total, running[-1])
        self._lines.extend([f"{head}{number}\n" for head, number in zip(heads, numbers, strict=True)])

    def text(self) -> str:
        """All of it."""
        return "".join(self._lines)


def _heads(name: str, pairs: str, bounds: Sequence[float]) -> tuple[str, ...]:
    before, braces = (f"{pairs},", f"{{{pairs}}}") if pairs else ("", "")
    marks = [*(str(float(bound)) for bound in bounds), "+Inf"]
    return (
        *(f'{name}_bucket{{{before}le="{mark}"}} ' for mark in marks),
        f"{name}_sum{braces} ",
        f"{name}_count{braces} ",
    )
