"""Sentences that every form of a report shows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from infera_cli.workload.comparison import failed
from infera_cli.workload.figures import Counts, Figures
from infera_cli.workload.goodput import Slo
from infera_cli.workload.names import TRACES
from infera_cli.workload.result import Document, Run
from infera_cli.workload.search import CEILING, PATIENCE, least_level

LISTED = 8  # workers named in the header
LEVELS = 10     # of load, that a search usually tries
MINUTES = 120   # seconds from which a time is told in minutes


def counted(counts: Counts) -> str:
    """How many requests there were, and what became of them."""
    said = f"{counts.sent:,} sent, {counts.ok:,} ok, {counts.failed:,} failed, {counts.incomplete:,} incomplete"
    return f"{said}; {counts.unsent:,} never sent" if counts.unsent else said


def failures(counts: Counts) -> Iterator[tuple[str, int, str]]:
    """(class, how many, what the first one said)."""
    for kind, many in counts.failures.items():
        yield kind, many, counts.examples.get(kind, "")


# ── what was cut off ─────────────────────────────────────────────────────────────────────────────────
def status(run: Run) -> str:
    """The verdict of a run in a table: a run that was cut off is not plainly valid."""
    return f"{run.verdict.status}, partial" if run.partial else run.verdict.status


def interrupted(document: Document) -> str:
    """What a result lacks that was cut off, by Ctrl-C or a fault; nothing for a complete one."""
    cut = sum(run.partial for run in document.runs)
    fault = document.findings.get("failed")
    if not cut and not fault and not document.findings.get("interrupted"):
        return ""
    if cut and len(document.runs) == 1 and not document.runs[0].cell:
        return "PARTIAL: the run was interrupted"
    whole = len(document.runs) - cut
    rest = "one cut off, any after it missing" if cut else "others missing"
    why = f"could not go on ({fault})" if fault else "was interrupted"
    return f"PARTIAL: the benchmark {why}; {whole} run{'s' * (whole != 1)} complete, {rest}"


def lost(document: Document) -> str:
    """The failed requests of a result, which no latency shows; nothing where none failed."""
    bad, judged = failed(_halves(document.runs))
    if not bad:
        return ""
    return f"{bad:,} of {judged:,} requests failed ({_classes(document.runs)}) and are in no latency figure"


def _halves(runs: Sequence[Run]) -> list[Figures]:
    """The figures of runs, and of what --direct sent past the router."""
    return [half for run in runs for half in (run.figures, run.direct) if half is not None]


def _classes(runs: Sequence[Run]) -> str:
    by_class: Counter[str] = Counter()
    for half in _halves(runs):
        by_class.update(half.counts.failures)
    return ", ".join(f"{many:,} × {kind}" for kind, many in by_class.most_common())


# ── the search ───────────────────────────────────────────────────────────────────────────────────────
def search_begins(
    kind: str, attainment: float, limits: Sequence[Slo], *, count: int | None, duration: float | None
) -> str:
    """What --find-max is about to do, and how long that takes."""
    kept = ", ".join(f"{slo.kind} ≤ {slo.limit * 1e3:g} ms" for slo in limits)
    first = least_level(kind, duration).level
    below = ", or less where 1 is too much" if first < 1 else ""
    what = f"{kind} ({math.ceil(first):,} to {CEILING:,} {'callers' if kind == 'concurrency' else f'req/s{below}'})"
    return (
        f"searching the highest {what} with {attainment:.0%} of requests within {kept}: twice as much until it"
        f" fails, then the middle; a probe is {_probe(kind, count, duration)}, and a level takes up to {PATIENCE}"
    )


def _probe(kind: str, count: int | None, duration: float | None) -> str:
    """The length of one probe; of ten levels, the usual number, where it is known."""
    if duration is None:
        return f"{count:,} requests" + (f", {count:,} s at the first level" if kind == "rate" else "")
    short, long = LEVELS * duration, LEVELS * PATIENCE * duration
    whole = f"{short:.3g} to {long:.3g} s" if long < MINUTES else f"{short / 60:.2g} to {long / 60:.2g} min"
    first = f"{count:,} requests or " if count is not None else ""
    return f"{first}{duration:g} s of load ({LEVELS} levels, as is usual: {whole})"


def find_max(found: dict[str, Any], runs: Sequence[Run] = ()) -> str:
    """The result of --find-max in a sentence; `runs` are the probes, by which its ends may be in doubt."""
    kind, low, high = found["kind"], found["passed"], found["failed"]
    level = f"{float(found['attainment']):.0%} of requests within the limits"
    if not found.get("finished", True):
        said = f"the search was interrupted: {_so_far(found, level)}"
    elif not low and _unjudged(found, high):
        said = f"whether any {kind} keeps {level} is not known"
    elif not low:
        said = f"not even {kind} {high or 1} keeps {level}"
    elif high is None:
        said = f"{kind} {low} keeps {level}; no level was found that does not"
    else:
        said = f"most load with {level}: {kind} between {low} (kept) and {high} (not kept)"
    if _unjudged(found, high):
        said += f"; of {kind} {high} nothing could be judged, its answers were cut off: a longer -d leaves them time"
    decisive = [run for run in runs if run.cell == f"{kind}={low or high}"]
    return "; ".join((said, *_doubts(kind, low, high, runs), *_faults(decisive)))


def _unjudged(found: dict[str, Any], level: float | None) -> bool:
    """Whether a level counts as not kept only since no probe of it had a request that could be judged."""
    seen = found.get("evidence", {}).get(str(level), {})
    return bool(seen.get("empty")) and seen["empty"] == seen["probes"]


def _so_far(found: dict[str, Any], level: str) -> str:
    """What a search knew when it was cut off."""
    kind, low, high = found["kind"], found["passed"], found["failed"]
    open_ones = [
        f"{kind} {tried} is undecided ({seen['good']} of {seen['judged']} requests within the limits)"
        for tried, seen in found.get("evidence", {}).items()
        if float(tried) > (low or 0) and (high is None or float(tried) < high)
    ]
    if low and high:
        known = f"so far {kind} {low} keeps {level} and {high} does not"
    elif low:
        known = f"so far {kind} {low} keeps {level}, more is not known"
    elif high:
        known = f"so far {kind} {high} does not keep {level}, less is not known"
    else:
        known = f"no level was decided; wanted are {level}"
    return "; ".join((known, *open_ones))


def _doubts(kind: str, passed: float, high: float | None, runs: Sequence[Run]) -> Iterator[str]:
    """Ends of the interval that the load generator spoiled: their last probes decided. A level passes by sound ones."""
    for end in filter(None, (passed, high)):
        probes = [run.verdict.status for run in runs if run.cell == f"{kind}={end}"]
        if probes and probes[-1] != "VALID" and (end != passed or "VALID" not in probes):
            yield f"but {kind} {end} was judged on {probes[-1]} runs, which say little of the server"


def _faults(runs: Sequence[Run]) -> Iterator[str]:
    """What went wrong at the load that decides the exit code."""
    bad, judged = failed(_halves(runs))
    if bad:
        yield f"{bad:,} of {judged:,} requests failed there ({_classes(runs)})"
    for limit in dict.fromkeys(limit for run in runs for limit in run.verdict.missed):
        yield f"missed there: {limit}"


# ── the header ───────────────────────────────────────────────────────────────────────────────────────
FEW = "~ behind a percentile: fewer than ten values lie beyond it"


def load(options: dict[str, Any]) -> str:
    """The load in a line: how requests came, and what they were."""
    dataset = options.get("dataset", {})
    return (
        f"{arrivals(options)}, dataset {dataset.get('name')}, seed {options.get('seed')}, cache {options.get('cache')}"
    )


def behind(run: Run) -> list[str]:
    """What the target says of itself when it is a router of ours, a line each."""
    router, workers = run.target.get("router"), run.target.get("workers")
    said = []
    if router:
        said.append(f"router   infera {router['version']}, policy {router['policy']}, settings {router['config']}")
    if workers:
        listed = ", ".join(list(workers)[:LISTED]) + (", …" if len(workers) > LISTED else "")
        said.append(f"workers  {len(workers)}: {listed}")
    return said


def arrivals(options: dict[str, object]) -> str:
    """The arrival process in words."""
    many = f"{options['count']} requests" if "count" in options else ""
    long = f"{options['duration']:g} s" if "duration" in options else ""
    how = " / ".join(part for part in (many, long) if part)
    return ", ".join(part for part in (_rhythm(options), how) if part)


def _rhythm(options: dict[str, object]) -> str:
    if "concurrency" in options:
        return f"closed loop, {options['concurrency']} callers"
    if "ramp_shape" in options:
        return f"{options['ramp_shape']} ramp {options['ramp_start']}→{options['ramp_end']} req/s"
    if options.get("rate", "inf") == "inf":
        trace = dict(options.get("dataset") or {}).get("name") in TRACES  # type: ignore[call-overload]
        return f"trace at speed {options.get('speed', 1.0)}" if trace else "all at once"
    burst = options.get("burstiness", 1.0)
    kind = "Poisson" if burst == 1.0 else "constant" if burst == "inf" else f"gamma {burst}"
    return f"open loop, {kind} {options['rate']} req/s"
