"""The reference page of metrics, made from their declarations."""

from __future__ import annotations

from infera_cli.telemetry import inferact
from infera_cli.telemetry.names import FAMILIES, Family

_HEAD = """# Metrics

Written by `make docs` from the metrics themselves; do not edit.

`GET /metrics` needs no key and asks no worker. It answers in Prometheus' text format, or in OpenMetrics where
the scraper prefers that, and adds the usual `process_*`, `python_info` and `python_gc_*` metrics.

Times are measured at the router, from the moment a request's head was complete. `model` is a name that a
worker lists, or `other`. When a worker leaves the fleet, its series go with it.

| metric | type | labels | meaning |
|---|---|---|---|
"""


_NODES = """
## Of the scheduler

With `--config`, or a policy that weighs costs. `inferact_oom_events_total` counts those that were recovered; ratios are
left out while they are not known.

| metric | type | labels | meaning |
|---|---|---|---|
"""


def metrics_page() -> str:
    """The page as Markdown."""
    return _HEAD + "".join(map(_row, FAMILIES)) + _NODES + "".join(map(_row, inferact.FAMILIES))


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.help} |\n"
