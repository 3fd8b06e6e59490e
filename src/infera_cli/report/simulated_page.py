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
    """The one picture as SVG. Where the workers vary: the share within the limits, without limits TTFT p99, by number
    of workers; else latency and hits by policy."""
    by_policy: dict[str, list[Outcome]] = {}
    for outcome in simulation.outcomes:
        if "ttft" in outcome.latency:
            by_policy.setdefault(outcome.policy, []).append(outcome)
    if all(len(found) == 1 for found in by_policy.values()):
        return plots.by_policy([
            (one.policy, one.latency["ttft"].mean, one.latency["ttft"].p99, one.hit_rate)
            for found in by_policy.values() for one in found
        ])
    if simulation.replicas:
        shares = {name: [(one.workers, _share(one)) for one in found] for name, found in by_policy.items()}
        return plots.within_limits(list(shares.items()), float(simulation.options.get("attainment", 0.95)))
    return plots.over_workers([
        (name, [(one.workers, one.latency["ttft"].p99) for one in found]) for name, found in by_policy.items()
    ])


def _share(outcome: Outcome) -> float:
    found = outcome.attainment
    return found.good / found.judged if found and found.judged else 0.0


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
