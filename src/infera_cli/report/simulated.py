"""A simulation on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from infera_cli.report import rows, tables
from infera_cli.report.console import render
from infera_cli.report.tables import Grid
from infera_cli.workload.simulated import Outcome, Simulation

USUAL = 150     # columns of what is no terminal
HEADS = (
    "policy", "workers", "req/s", "TTFT p50", "p99", "TPOT p50", "E2EL p50", "p99", "hits", "imbalance", "busy",
    "GPU s", "in limits", "goodput",
)


SPARE = (9, 11, 10, 5, 2)     # what a narrow terminal does without: imbalance, GPU s, busy, TPOT, req/s


def report(simulation: Simulation, *, width: int | None = None, colour: bool = False) -> str:
    """The table, and the answer in a sentence a policy; latencies in milliseconds."""
    judged = any(outcome.attainment for outcome in simulation.outcomes)
    heads = HEADS if judged else HEADS[:-2]
    lines = [line(outcome)[: len(heads)] for outcome in simulation.outcomes]
    told = [Text(said, style="bold") for said in answers(simulation)]
    wide = tables.width() if sys.stdout.isatty() else USUAL
    about = [Text(said) for said in words(simulation.options)]
    return render([*about, Grid(heads, lines, spare=SPARE), *told], width=width or wide, colour=colour)


def words(options: dict[str, Any]) -> Iterator[str]:
    """What was simulated: load, engines and limits, a line each."""
    plan, data, engine = options["arrivals"], options["dataset"], options["profile"]
    source = data.get("path") or f"{data['name']}, {data['input_len']} tokens and {data['output_len'] or 128} of answer"
    yield f"load: {_arrivals(plan)} · {source} · seed {options['seed']}"
    yield (
        f"engines: {engine['prefill_rate']:,.0f} prompt tokens/s, a step {engine['step_ms']:.3g} ms and"
        f" {engine['sequence_ms']:.3g} ms a sequence, {engine['blocks']:,} blocks of {engine['block_size']} tokens"
    )
    if options["slos"]:
        kept = ", ".join(f"{slo['kind']} ≤ {slo['limit'] * 1e3:g} ms" for slo in options["slos"])
        yield f"limits: {kept}, for {options['attainment']:.0%} of the requests"


def _arrivals(plan: dict[str, Any]) -> str:
    many = f"{plan['count']:,}" if plan.get("count") else "all" if plan["type"] == "replay" else "requests"
    lasts = f" for {plan['duration']:g} s" if plan.get("duration") else ""
    if plan["type"] == "replay":
        fast = f", {plan['speed']:g} times as fast" if plan["speed"] != 1 else ""
        return f"{many} at their own times{lasts}{fast}"
    if plan["type"] == "closed":
        return f"{many} from {plan['concurrency']} callers"
    if plan.get("ramp"):
        return f"{many}, {plan['ramp']['start']:g} to {plan['ramp']['end']:g} a second{lasts}"
    return f"{many}, " + ("all at once" if plan["rate"] == "inf" else f"{plan['rate']:g} a second{lasts}")


def line(outcome: Outcome) -> tuple[str, ...]:
    """One outcome as the cells of HEADS."""
    found = outcome.attainment
    return (
        outcome.policy, str(outcome.workers), rows.number(outcome.requests_per_s),
        *(_milliseconds(outcome, kind, name) for kind, name in (
            ("ttft", "p50"), ("ttft", "p99"), ("tpot", "p50"), ("e2el", "p50"), ("e2el", "p99"))),
        f"{outcome.hit_rate:.1%}", f"{outcome.imbalance:.2f}", f"{outcome.busy:.0%}",
        rows.number(outcome.gpu_seconds), f"{found.good / found.judged:.1%}" if found and found.judged else "-",
        rows.number(outcome.goodput),
    )


def _milliseconds(outcome: Outcome, kind: str, name: str) -> str:
    of = outcome.latency.get(kind)
    return "-" if of is None else rows.milliseconds(of.scaled(1e3), name)


def answers(simulation: Simulation) -> Iterator[str]:
    """What can be said in words: how many workers it takes, and what no engine could hold."""
    for name, fewest in simulation.replicas.items():
        if fewest is None:
            yield f"{name}: no number of workers that was allowed keeps the limits"
        else:
            yield f"{name}: {fewest} workers keep the limits"
    if simulation.left_out:
        yield f"{simulation.left_out} rows of the trace without an answer's tokens (or a prompt's) were left out"
    if simulation.rows:
        yield f"the dataset has {simulation.rows} rows and was sent again after the last"
    lost = max((outcome.too_long for outcome in simulation.outcomes), default=0)
    if lost:
        yield f"{lost} requests are longer than an engine's whole KV cache and were not served"
