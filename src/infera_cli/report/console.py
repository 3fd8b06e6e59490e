"""The report on a terminal: one block per run, the verdict last."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from infera_cli.report import rows, words
from infera_cli.workload.figures import Counts, Figures
from infera_cli.workload.result import Document, Run

COLOURS = {"VALID": "green", "INVALID": "bold red", "DEGRADED": "yellow"}


class View(NamedTuple):
    """Which latencies (all: none named) and which figures of them the tables show."""

    metrics: tuple[str, ...] = ()
    statistics: tuple[str, ...] = rows.STATISTICS

    def shows(self, key: str) -> bool:
        """Whether this latency is among them."""
        return not self.metrics or key in self.metrics


def report(
    document: Document, *, width: int = 110, colour: bool = False,
    metrics: tuple[str, ...] = (), statistics: tuple[str, ...] = rows.STATISTICS,
) -> str:
    """The whole document as text."""
    view = View(metrics, statistics)
    blocks: list[RenderableType] = [block for run in document.runs for block in _run(run, view)]
    if len(document.runs) > 1:
        blocks.append(_overview(document))
    if len(document.runs) > 1 or document.findings.get("interrupted"):
        blocks += [Text(said, style="bold yellow") for said in (words.interrupted(document),) if said]
    found = document.findings.get("find_max")
    if found:
        blocks.append(Text(words.find_max(found, document.runs), style="bold"))
    return render(blocks, width=width, colour=colour)


def render(blocks: Sequence[RenderableType], *, width: int, colour: bool) -> str:
    """Rich blocks as text, without trailing blanks."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, color_system="standard" if colour else None,
        highlight=False, emoji=False,
    )
    console.print(Group(*blocks))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _run(run: Run, view: View) -> list[RenderableType]:
    blocks: list[RenderableType] = [*_header(run), _latency_table(run.figures, "latency, ms", view, adjusted=True)]
    split = rows.router(run.figures)
    if split:
        blocks.append(_table("time to the first byte, ms", split, view))
    if run.direct is not None:
        blocks.append(_latency_table(run.direct, "latency past the router (--direct), ms", view))
        blocks += _failures("past the router:", run.direct.counts)
        blocks += [Text(line) for line in (*rows.overhead(run), "")]
    blocks += [_facts(run), *_workers(run.figures), *_failures("\nrequests", run.figures.counts), *_verdict(run)]
    return blocks


def _header(run: Run) -> list[RenderableType]:
    options = run.options
    dataset, load = options.get("dataset", {}), words.arrivals(options)
    lines = [
        Text(f"── {rows.title(run)} " + "─" * 40, style="bold"),
        Text(f"target   {run.target['url']}  model {options.get('model')}"),
        *map(Text, words.behind(run)),
        Text(f"load     {load}, dataset {dataset.get('name')}, seed {options.get('seed')},"
             f" cache {options.get('cache')}"),
        Text(f"client   {run.client.host}, {run.client.processes} process"
             f"{'es' if run.client.processes > 1 else ''}, {run.client.placement}"),
    ]
    if run.partial:
        lines.append(Text("PARTIAL: the run was interrupted", style="bold yellow"))
    return [*lines, Text("")]


def _latency_table(figures: Figures, title: str, view: View, *, adjusted: bool = False) -> RenderableType:
    table = _table(title, [row for row in rows.latencies(figures) if view.shows(row.key)], view)
    for row in rows.adjusted(figures) if adjusted else ():
        if view.shows(row.key):
            table.add_row(row.label, *(row.cells.get(name, "") for name in view.statistics), "")
    return table


def _table(title: str, latencies: Sequence[rows.Latency], view: View) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in view.statistics:
        table.add_column(rows.HEADS.get(name, name), justify="right")
    table.add_column("n", justify="right")
    for row in latencies:
        cells = [rows.milliseconds(row.figures, name) for name in view.statistics]
        table.add_row(row.label, *cells, f"{row.figures.n:,}")
    return table


def _facts(run: Run) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("")
    for fact in (*rows.rates(run), *rows.cache(run)):
        table.add_row(fact.label, rows.number(fact.value), fact.unit)
    for label, size in rows.sizes(run.figures):
        between = f"mean ({rows.number(size.min)} – {rows.number(size.max)})"
        table.add_row(label, rows.number(size.mean), between)
    found = run.figures.attainment
    if found is not None and found.judged:
        judged = found.judged
        table.add_row("within all limits", f"{found.good / judged:.1%}", f"{found.good} of {judged}")
        for kind, limit in found.limits.items():
            met = found.met[kind]
            table.add_row(f"  {kind} ≤ {limit * 1e3:g} ms", f"{met / judged:.1%}", f"{met} of {judged}")
    return table


def _workers(figures: Figures) -> list[RenderableType]:
    if not figures.workers:
        return []
    table = Table(title="\nworkers", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("", "requests", "share", "failed", "input tok", "cached", "output tok", "TTFT p50 ms"):
        table.add_column(name, justify="left" if not name else "right")
    total = sum(worker.requests for worker in figures.workers) or 1
    for worker in figures.workers:
        cached = f"{worker.cached_tokens / worker.input_tokens:.1%}" if worker.input_tokens else "-"
        ttft = rows.number(worker.ttft_p50 * 1e3) if worker.ttft_p50 is not None else "-"
        table.add_row(
            worker.worker, f"{worker.requests:,}", f"{worker.requests / total:.1%}", f"{worker.failed:,}",
            f"{worker.input_tokens:,}", cached, f"{worker.output_tokens:,}", ttft,
        )
    return [table]


def _failures(of: str, counts: Counts) -> list[RenderableType]:
    lines = [Text(f"{of} {words.counted(counts)}")]
    for kind, many, said in words.failures(counts):
        lines.append(Text(f"  {many:,} × {kind}{f': {said[:140]}' if said else ''}", style="red"))
    return list(lines)


def _verdict(run: Run) -> list[RenderableType]:
    found = run.verdict
    lines = [Text(f"note     {warning}", style="yellow") for warning in found.warnings]
    said = f"{found.status}" + (": " + "; ".join(found.reasons) if found.reasons else "")
    lines += [Text(f"missed   {limit}", style="bold red") for limit in found.missed]
    return [*lines, Text(said, style=COLOURS[found.status]), Text("")]


def _overview(document: Document) -> Table:
    table = Table(title="all runs", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    latency = ("TTFT p50", "TTFT p99", "TPOT p50", "E2EL p99")
    for name in ("", "req/s", "out tok/s", *latency, "failed", "in limits", ""):
        table.add_column(name, justify="left" if not name else "right")
    for run in document.runs:
        figures = run.figures
        cells = [
            rows.milliseconds(figures.latency[key].scaled(1e3), name) if key in figures.latency else "-"
            for key, name in (("ttft", "p50"), ("ttft", "p99"), ("tpot", "p50"), ("e2el", "p99"))
        ]
        found = figures.attainment
        good = f"{found.good / found.judged:.1%}" if found is not None and found.judged else "-"
        table.add_row(
            rows.title(run), rows.number(figures.rates.overall_requests),
            rows.number(figures.rates.overall_output_tokens), *cells, f"{figures.counts.failed:,}", good,
            words.status(run),
        )
    return table
