"""Does cost routing route well? Fixed workloads and seeds, in simulated time: `python -m bench.scheduler_proof`.

Writes bench/results/scheduler-proof.md and ends with status 1 when a bar is missed. `--quick` runs a tenth of the
time, for tests; its figures are not written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.scheduler_sim import FLEET, Outcome, Request, Simulation, joint_capacity, poisson
from infera_cli.routing.nodes import OOM_STEP

RESULT = Path(__file__).parent / "results" / "scheduler-proof.md"
SEED = 20_240_501
LOAD = 0.7
SECONDS = 600.0
CAP = 16


@dataclass(frozen=True, slots=True)
class Bar:
    """One statement, what was measured for it, and whether it holds."""

    says: str
    found: str
    met: bool


# ── latency ──────────────────────────────────────────────────────────────────────────────────────────
def latencies(rate: float, seconds: float) -> tuple[list[str], list[Bar]]:
    """Three policies on the same arrivals."""
    lines = ["| policy | p50 s | p90 s | p99 s | requests by node |", "|---|---|---|---|---|"]
    p99 = {}
    for policy in ("round-robin", "least-loaded", "cost"):
        outcome = Simulation(policy).run(poisson(rate, seconds, SEED))
        p99[policy] = outcome.percentile(0.99)
        shares = [sum(request.node == at for request in outcome.requests) for at in range(len(FLEET))]
        figures = " | ".join(f"{outcome.percentile(share):.2f}" for share in (0.5, 0.9, 0.99))
        lines.append(f"| {policy} | {figures} | {', '.join(map(str, shares))} |")
    return lines, [
        _at_most("p99 of cost ÷ p99 of round-robin", p99["cost"] / p99["round-robin"], 0.6),
        _at_most("p99 of cost ÷ p99 of least-loaded", p99["cost"] / p99["least-loaded"], 0.9),
    ]


def _at_most(says: str, value: float, limit: float) -> Bar:
    return Bar(f"{says} ≤ {limit:g}", f"{value:.3f}", value <= limit)


# ── caps and priorities ──────────────────────────────────────────────────────────────────────────────
def priorities(rate: float, seconds: float) -> tuple[list[str], list[Bar]]:
    """A rush above what the capped nodes can do, then quiet: who waits, and for how long."""
    rush = seconds / 5
    requests = poisson(rate * 1.6, rush, SEED + 1) + poisson(rate * 0.3, rush, SEED + 2, start=rush)
    for number, request in enumerate(requests):
        request.priority = (1, 5, 9)[number % 3]
    outcome = Simulation("cost", cap=CAP).run(requests)
    waits = {level: [r.sent - r.arrived for r in requests if r.priority == level] for level in (1, 5, 9)}
    lines = ["| priority | requests | mean wait s | longest wait s |", "|---|---|---|---|"]
    for level, own in waits.items():
        lines.append(f"| {level} | {len(own)} | {sum(own) / len(own):.2f} | {max(own):.2f} |")
    means = {level: sum(own) / len(own) for level, own in waits.items()}
    return lines, [
        Bar("requests sent to a node at its effective cap: none", str(outcome.over_cap), outcome.over_cap == 0),
        Bar("priority 9 waits less than 5, and that less than 1", "yes" if means[9] < means[5] < means[1] else "no",
            means[9] < means[5] < means[1]),
        Bar("nobody starves: all were served", f"{sum(r.ended > 0 for r in requests)} of {len(requests)}",
            all(request.ended > 0 for request in requests)),
        Bar("overtaken by later arrivals of higher priority for 100 s at most", f"{_overtaken(requests):.1f} s",
            _overtaken(requests) <= 100),
    ]  # fmt: skip


def _overtaken(requests: Sequence[Request]) -> float:
    """For how long, after somebody came, later ones were still sent before it; the longest such time."""
    longest, earliest = 0.0, float("inf")
    for request in sorted(requests, key=lambda one: (one.sent, one.arrived), reverse=True):
        if earliest < request.arrived:
            longest = max(longest, request.sent - earliest)
        earliest = min(earliest, request.arrived)
    return longest


# ── adaptive ─────────────────────────────────────────────────────────────────────────────────────────
def adaptive(rate: float) -> tuple[list[str], list[Bar]]:
    """Strangers, then conversations that share system prompts, then strangers again: 300, 600 and 600 s."""
    requests: list[Request] = []
    for number, (start, seconds, shared) in enumerate([(0, 300, False), (300, 600, True), (900, 600, False)]):
        for at, request in enumerate(poisson(rate / 4, seconds, SEED + 10 + number, start=start)):
            name = at % 8 if shared else 1_000_000 * (number + 1) + at
            request.chain, request.sizes = (name,), (request.prompt // 2,)
            requests.append(request)
    outcome = Simulation("adaptive").run(requests)
    switches = outcome.switches
    lines = [f"- {'on' if on else 'off'} at {time:.0f} s" for time, on in switches]
    expected = [on for _, on in switches] == [True, False]
    on_at, off_at = (switches[0][0], switches[1][0]) if expected else (0.0, 0.0)
    # Above 40 % once four tenths of the window are conversations, below 30 % once seven tenths are strangers again.
    return lines, [
        Bar("off at first, one switch on, one switch off", str([on for _, on in switches]), expected),
        Bar("on once 40 % of five minutes were hits (420 s, a tenth of a window of luck)", f"{on_at:.0f} s",
            390 <= on_at <= 450),
        Bar("off once fewer than 30 % were (1110 s, the same)", f"{off_at:.0f} s", 1080 <= off_at <= 1140),
    ]  # fmt: skip


# ── out of memory ────────────────────────────────────────────────────────────────────────────────────
def recovery(rate: float, seconds: float) -> tuple[list[str], list[Bar]]:
    """One A100 reports an out-of-memory; its cap comes back by one each 30 s."""
    at, due = seconds / 4, seconds / 4 + OOM_STEP * (CAP / 2)
    last = due + seconds / 2
    requests = poisson(rate, last, SEED + 20)
    outcome = Simulation("cost", cap=CAP, ooms=((at, 1),)).run(requests)
    spans = [("before", 0.0, at), ("the 30 s after", at, at + 30.0), ("once it should be back", due, last)]
    shares = {name: _share(outcome, begin, end) for name, begin, end in spans}
    lines = ["| time | share of that node |", "|---|---|"]
    lines += [f"| {name} ({begin:.0f}–{end:.0f} s) | {shares[name]:.1%} |" for name, begin, end in spans]
    ratio = shares["once it should be back"] / shares["before"]
    fell = shares["the 30 s after"] / shares["before"]
    return lines, [
        Bar("its share in the cool-down, against before: at most 0.8", f"{fell:.2f}", fell <= 0.8),
        Bar(f"its share after {OOM_STEP * CAP / 2:.0f} s (30 s for each place it lost): 0.9 to 1.1 of before",
            f"{ratio:.2f}", 0.9 <= ratio <= 1.1),
        Bar("requests sent to a node at its effective cap: none", str(outcome.over_cap), outcome.over_cap == 0),
    ]  # fmt: skip


def _share(outcome: Outcome, begin: float, end: float) -> float:
    sent = [request for request in outcome.requests if begin <= request.sent < end]
    return sum(request.node == 1 for request in sent) / len(sent)


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────
def prove(seconds: float = SECONDS) -> tuple[str, list[Bar]]:
    """The page, and all bars on it."""
    capacity = joint_capacity()
    rate = LOAD * capacity
    capped = LOAD * joint_capacity(open_requests=CAP)
    chapters = [
        (f"Latency at {LOAD:.0%} of joint capacity ({rate:.1f} of {capacity:.1f} requests a second, {seconds:.0f} s)",
         latencies(rate, seconds)),
        (f"Caps and priorities ({CAP} requests a node, a rush above capacity, then quiet)",
         priorities(capped, seconds)),
        ("Adaptive: strangers, then shared system prompts from 300 s, then strangers from 900 s", adaptive(rate)),
        (f"Out of memory on one A100 ({CAP} requests a node)", recovery(capped, seconds)),
    ]  # fmt: skip
    page, bars = [_HEAD], []
    for title, (lines, own) in chapters:
        page += [f"## {title}", "", *lines, "", "| bar | measured | |", "|---|---|---|"]
        page += [f"| {bar.says} | {bar.found} | {'met' if bar.met else '**missed**'} |" for bar in own]
        page.append("")
        bars += own
    return "\n".join(page), bars


_HEAD = f"""# Scheduler proof

Written by `python -m bench.scheduler_proof` (seed {SEED}); simulated time, so it is the same on every machine.

Fleet: {', '.join(FLEET)}.

Engines are the simulated engine of this repository with step times, prefill rates and cache sizes that follow from the
hardware's figures (bench/scheduler_sim.py); prompts and answers have log-normal lengths, arrivals are Poisson. The
scheduler is the real one: the same `decide`, costs, caps, queue and node states as in `infera serve --config`. All
policies have the same admission by tokens, which helps round-robin and least-loaded.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run, show, and write where it was not quick."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the time; writes nothing")
    quick = parser.parse_args(argv).quick
    page, bars = prove(SECONDS / 10 if quick else SECONDS)
    print(page)
    if not quick:
        RESULT.write_text(page, encoding="utf-8")
    return 0 if all(bar.met for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
