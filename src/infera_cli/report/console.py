"""The report on a terminal: one block per run, the verdict last."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.text import Text

from infera_cli.report import ending, repeats, rows, tables, words
from infera_cli.report.tables import Grid
from infera_cli.workload.figures import Counts, Figures
from infera_cli.workload.result import Document, Run

SAY_LEAST, SAY_MOST = ("p999", "p95"), ("mean", "p50", "p99", "max")
COLOURS = {"VALID": "green", "INVALID": "bold red", "DEGRADED": "yellow"}


class View(NamedTuple):
    """Which latencies (all: none named) and which figures of them the tables show."""

    metrics: tuple[str, ...] = ()
    statistics: tuple[str, ...] = rows.STATISTICS

    def shows(self, key: str) -> bool:
        """Whether this latency is among them."""
        return not self.metrics or key in self.metrics


def report(
    document: Document, *, width: int | None = None, colour: bool = False,
    metrics: tuple[str, ...] = (), statistics: tuple[str, ...] = rows.STATISTICS, code: int = 0,
) -> str:
    """The whole document as text; as wide as the terminal where nothing else is said. `code` is what the command
    exits with, and its reason the last line."""
    view, found = View(metrics, statistics), document.findings.get("find_max")
    alone = document.runs[0].verdict.exit_code if code and len(document.runs) == 1 and not found else 0
    blocks: list[RenderableType] = [block for run in document.runs for block in _run(run, view, alone)]
    if len(document.runs) > 1:
        blocks += [_overview(document), *([Text(ending.AGAIN, style="dim")] if _again(document) else []), Text()]
        blocks += _repeats(document)
    cut = words.interrupted(document)
    if cut and not (len(document.runs) == 1 and document.runs[0].partial):      # whose header says so
        blocks.append(Text(cut, style="bold yellow"))
    if found:
        blocks.append(Text(ending.search(document, code), style="bold"))
    elif said := ending.last(document, code):
        blocks.append(Text(said, style="bold red"))
    return render(blocks, width=width, colour=colour)


def render(blocks: Sequence[RenderableType], *, width: int | None, colour: bool) -> str:
    """Rich blocks as text, without trailing blanks."""
    out = io.StringIO()
    console = Console(
        file=out, width=width or tables.width(), force_terminal=colour, color_system="standard" if colour else None,
        highlight=False, emoji=False,
    )
    console.print(Group(*blocks))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _run(run: Run, view: View, code: int) -> list[RenderableType]:
    latency = _latency_table(run.figures, "latency, ms", view, adjusted=True)
    blocks: list[RenderableType] = [*_header(run), latency, Text()]
    split = rows.router(run.figures)
    if split:
        blocks += [_table(rows.ROUTER_TITLE, split, view), *_quiet(rows.router_sum(run.figures)), Text()]
    if rows.few(run.figures, view.statistics):
        blocks.append(Text(f"{words.FEW}\n", style="dim"))
    if run.direct is not None:
        blocks += [_latency_table(run.direct, "latency past the router (--direct), ms", view), Text()]
        blocks += _failures("past the router:", run.direct.counts)
        blocks += [Text(line) for line in (*rows.overhead(run), "")]
    if sizes := rows.sizes(run.figures):
        blocks += [_table("tokens", sizes, view), Text()]
    blocks += [_facts(run), *_workers(run.figures), *_failures("\nrequests", run.figures.counts)]
    return [*blocks, *_verdict(run, code)]


def _quiet(said: str) -> list[Text]:
    return [Text(said, style="dim")] if said else []


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


def _latency_table(figures: Figures, title: str, view: View, *, adjusted: bool = False) -> Grid:
    more = [
        (row.label, *(row.cells.get(name, "") for name in view.statistics), "")
        for row in (rows.adjusted(figures) if adjusted else ()) if view.shows(row.key)
    ]
    return _table(title, [row for row in rows.latencies(figures) if view.shows(row.key)], view, more)


def _table(
    title: str, latencies: Sequence[rows.Latency], view: View, more: Sequence[tuple[str, ...]] = ()
) -> Grid:
    lines = [
        (row.label, *(rows.milliseconds(row.figures, name) for name in view.statistics), f"{row.figures.n:,}")
        for row in latencies
    ]
    heads = ["", *(rows.HEADS.get(name, name) for name in view.statistics), "n"]
    least = [name for name in SAY_LEAST if name in view.statistics]
    least += [name for name in view.statistics if name not in (*least, *SAY_MOST)]
    spare = [view.statistics.index(name) + 1 for name in least]
    return Grid(heads, [*lines, *more], title=title, words=(0,), spare=spare)


def _facts(run: Run) -> Grid:
    lines = [(fact.label, rows.number(fact.value), fact.unit) for fact in (*rows.rates(run), *rows.cache(run))]
    return Grid(("", "", ""), [*lines, *rows.attained(run.figures)], words=(0,), left=(0, 2), plain=True)


def _workers(figures: Figures) -> list[RenderableType]:
    if not figures.workers:
        return []
    return [Text(), Grid(rows.WORKERS, rows.workers(figures), spare=(6, 4))]


def _failures(of: str, counts: Counts) -> list[RenderableType]:
    lines = [Text(f"{of} {words.counted(counts)}")]
    for kind, many, said in words.failures(counts):
        lines.append(Text(f"  {many:,} × {kind}{f': {said[:140]}' if said else ''}", style="red"))
    return list(lines)


def _verdict(run: Run, code: int) -> list[RenderableType]:
    found = run.verdict
    lines = [Text(f"note     {said}", style="yellow") for said in (*found.warnings, *ending.notes(run))]
    lines += [Text(f"missed   {limit}", style="bold red") for limit in found.missed]
    bad = any(ending.failing(run))
    return [*lines, Text(ending.verdict(run, code), style="bold red" if bad else COLOURS[found.status]), Text("")]


def _again(document: Document) -> bool:
    return any(run.repeat for run in document.runs)


def _repeats(document: Document) -> list[RenderableType]:
    lines = list(repeats.lines(document))
    return [Grid(repeats.HEADS, lines, title=repeats.TITLE, spare=repeats.SPARE), Text()] if lines else []


def _overview(document: Document) -> Grid:
    lines = [(*rows.overview(run), words.status(run)) for run in document.runs]
    return Grid(rows.OVERVIEW, lines, title="all runs; latencies in ms", spare=(5, 3, 2, 1, 6))
