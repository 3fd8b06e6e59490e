"""A simulation as one HTML page, and as one picture."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

import msgspec

from infera_cli.report import page, plots, simulated
from infera_cli.workload.simulated import Outcome, Simulation


def report(simulation: Simulation) -> str:
    """The page for one simulation."""
    parts = ["".join(f"<p><b>{escape(said)}</b></p>" for said in simulated.answers(simulation))]
    parts.append(page.pictures([("main figure", picture(simulation)), *_curves(simulation)]))
    parts.append(page.table(simulated.HEADS, [simulated.line(outcome) for outcome in simulation.outcomes]))
    options = msgspec.json.format(msgspec.json.encode(simulation.options), indent=1).decode()
    parts.append(f"<details><summary>Options</summary><pre>{escape(options)}</pre></details>")
    return page.whole("infera simulate", f"infera {simulation.tool_version}; latencies in ms", parts)


def picture(simulation: Simulation) -> bytes:
    """The one picture as SVG: latency over workers where these vary, else latency and hits by policy."""
    by_policy: dict[str, list[Outcome]] = {}
    for outcome in simulation.outcomes:
        by_policy.setdefault(outcome.policy, []).append(outcome)
    if any(len(found) > 1 for found in by_policy.values()):
        return plots.over_workers([
            (name, [(one.workers, one.latency["ttft"].p99) for one in found if "ttft" in one.latency])
            for name, found in by_policy.items()
        ], limit=_limit(simulation))
    return plots.by_policy([
        (one.policy, one.latency["ttft"].mean, one.latency["ttft"].p99, one.hit_rate)
        for one in simulation.outcomes if "ttft" in one.latency
    ])


def _limit(simulation: Simulation) -> float | None:
    found = next((one.attainment for one in simulation.outcomes if one.attainment), None)
    return found.limits.get("ttft") if found else None


def _curves(simulation: Simulation) -> Iterator[tuple[str, bytes]]:
    """TTFT of every policy, each at the number of workers that answers the question."""
    chosen = {}
    for outcome in simulation.outcomes:
        wanted = simulation.replicas.get(outcome.policy)
        if "ttft" in outcome.latency and (wanted is None or outcome.workers == wanted):
            chosen[outcome.policy] = outcome
    if chosen:
        curves = [(f"{one.policy}, {one.workers} workers", one.latency["ttft"]) for one in chosen.values()]
        yield "time to first token", plots.distribution(curves, "Time to first token")
