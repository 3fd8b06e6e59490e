"""Writes the two text formats of Prometheus.

prometheus_client can do this too, at several microseconds a sample; with hundreds of workers a scrape would hold
up the event loop for a tenth of a second. Here a sample costs a fraction of that.
"""

from __future__ import annotations

from collections.abc import Sequence

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
        name, before = self._name, f"{pairs}," if pairs else ""
        running = 0
        for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
            running += count
            self._lines.append(f'{name}_bucket{{{before}le="{float(bound)}"}} {running}\n')
        running += histogram.counts[-1]
        self._lines.append(f'{name}_bucket{{{before}le="+Inf"}} {running}\n')
        braces = f"{{{pairs}}}" if pairs else ""
        self._lines.append(f"{name}_sum{braces} {histogram.total}\n{name}_count{braces} {running}\n")

    def text(self) -> str:
        """All of it."""
        return "".join(self._lines)
