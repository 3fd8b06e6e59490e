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
    if rows.few(run.figures, view.statistics):
        blocks.append(Text(f"{words.FEW}\n", style="dim"))
    if run.direct is not None:
        blocks.append(_latency_table(run.direct, "latency past the router (--direct), ms", view))
        blocks += _failures("past the router:", run.direct.counts)
        blocks += [Text(line) for line in (*rows.overhead(run), "")]
    blocks += [_facts(run), *_workers(run.figures), *_failures("\nrequests", run.figures.counts), *_verdict(run)]
    return blocks


def _header(run: Run) -> list[RenderableType]:
    options = run.options
    lines = [
        Text(f"── {rows.title(run)} " + "─" * 40, style="bold"),
        Text(f"target   {run.target['url']}  model {options.get('model')}"),
        *map(Text, words.behind(run)),
        Text(f"load     {words.load(options)}"),
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
    for line in rows.attained(run.figures):
        table.add_row(*line)
    return table


def _workers(figures: Figures) -> list[RenderableType]:
    if not figures.workers:
        return []
    table = Table(title="\nworkers", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(rows.WORKERS):
        table.add_column(name if place else "", justify="right" if place else "left")
    for line in rows.workers(figures):
        table.add_row(*line)
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
    for name in rows.OVERVIEW:
        table.add_column(name, justify="right" if name else "left")
    for run in document.runs:
        table.add_row(*rows.overview(run), words.status(run))
    return table
