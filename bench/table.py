"""The results as a page of Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bench.bars import BARS
from bench.contenders import ALL
from bench.results import Results
from bench.scenarios import STREAMED, UNARY, Plan

UNITS = {
    "latency p50": "ms", "latency p99": "ms", "--help": "ms", "/health after": "s",
    "memory after few": "MB", "memory after many": "MB", "memory with streams": "MB",
}


def page(results: Results, plan: Plan) -> str:
    """Bars first, then what every contender needed, then how it was obtained."""
    parts = ["# infera serve beside its peers", _about(results, plan), "## Bars", _bars(results)]
    measured = [name for name in (*UNARY, *STREAMED) if name in results.samples]
    if measured:
        parts += ["## CPU µs of the router per request or stream", _costs(results, measured)]
    parts += ["## Everything else", _others(results, measured)]
    for title, remarks in (("Not measured", results.missing), ("Requests that failed", results.failures)):
        if remarks:
            parts += [f"## {title}", "\n".join(f"- {name}: {remark}" for name, remark in remarks.items())]
    return "\n\n".join(parts) + "\n"


def _about(results: Results, plan: Plan) -> str:
    about = ", ".join(f"{key} {value}" for key, value in results.about.items())
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    return (
        f"{about}.\n{versions}.\n\n"
        f"Medians of {plan.rounds} interleaved rounds of {plan.seconds:g} s; a ratio is the median of"
        f" the rounds' own ratios. Paced streams have {4 * plan.rounds} rounds more of nginx and ours."
        " The router has one core, load and upstreams share the other."
        " `make bench` repeats it; bench/README.md says how it works."
    )


def _bars(results: Results) -> str:
    rows = [(bar.claim, bar.allowed, *bar.verdict(results)) for bar in BARS]
    return _grid(("claim", "allowed", "measured", ""), rows)


def _costs(results: Results, scenarios: Sequence[str]) -> str:
    rows = []
    for contender in ALL:
        values = (results.value(scenario, contender.name) for scenario in scenarios)
        rows.append((contender.name, *(_figure(value) for value in values)))
    return _grid(("router", *scenarios), rows)


def _others(results: Results, measured: Sequence[str]) -> str:
    rows = []
    for scenario, found in results.samples.items():
        if scenario not in measured:
            unit = UNITS.get(scenario, "µs CPU")
            rows += [(scenario, name, f"{_figure(results.value(scenario, name))} {unit}") for name in found]
    return _grid(("scenario", "who", "median"), rows)


def _figure(value: float) -> str:
    if math.isnan(value):
        return "NOT MEASURED"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
