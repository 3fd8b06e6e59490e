"""The report as one HTML file: no script, no network, every plot inside."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files

import msgspec

from infera_cli.report import compared, ending, plots, repeats, rows, words
from infera_cli.workload.comparison import Row
from infera_cli.workload.distribution import Distribution
from infera_cli.workload.figures import Counts, Figures
from infera_cli.workload.result import Document, Run


def report(document: Document) -> str:
    """The page for one result."""
    parts: list[str] = []
    if cut := words.interrupted(document):
        parts.append(f'<p><span class="verdict DEGRADED">{escape(cut)}</span></p>')
    found = document.findings.get("find_max")
    if found:
        parts.append(f"<p><b>{escape(words.find_max(found, document.runs))}</b></p>")
    if len(document.runs) > 1:
        parts += _overview(document)
    for run in document.runs:
        parts += _run(run)
    return whole("infera bench", f"infera {document.tool_version}", parts)


def picture(document: Document) -> bytes:
    """The one picture as SVG: throughput against latency over the cells of a sweep, else the latencies of the run."""
    cells = _drawn(document)
    if len(cells) > 1:
        return plots.trade_off([("TTFT", cells)])
    latency = cells[0][1].latency
    named = (("ttft", "first token"), ("e2el", "end to end"))
    return plots.distribution([(label, latency[key]) for key, label in named if key in latency], "Latency")


def comparison(
    names: tuple[str, str], documents: tuple[Document, Document], cells: dict[str, list[Row]],
    warnings: Sequence[str] = (),
) -> str:
    """The page for two results side by side."""
    legend = f"A = {escape(names[0])}<br>B = {escape(names[1])}"
    parts = [f"<p>{legend}</p>", _list(warnings)]
    first, second = (document.cells() for document in documents)
    if len(cells) > 1:
        series = [
            (name, [(cell, rows.typical(found[cell]).figures) for cell in cells])
            for name, found in (("A", first), ("B", second))
        ]
        parts.append(pictures([("throughput against latency", plots.trade_off(series))]))
    for cell, found in cells.items():
        parts.append(f"<h2>{escape(cell or 'Comparison')}</h2>")
        parts.append(_comparison_table(found))
        parts.append(pictures(_overlays(first[cell][0].figures, second[cell][0].figures)))
    rule = "a change is called one when its 95 % interval leaves out zero"
    return whole("infera bench compare", rule, parts)


def _overlays(a: Figures, b: Figures) -> Iterator[tuple[str, bytes]]:
    named = {"ttft": "Time to first token", "tpot": "Time per output token", "e2el": "End to end"}
    for key, label in named.items():
        if key in a.latency and key in b.latency:
            yield label, plots.distribution([("A", a.latency[key]), ("B", b.latency[key])], label)


def _comparison_table(found: Sequence[Row]) -> str:
    lines = [(row.verdict.split()[0], compared.compared(row)) for row in found]
    return table(compared.HEADS, (cells for _kind, cells in lines), kinds=[kind for kind, _cells in lines])


# ── one result ───────────────────────────────────────────────────────────────────────────────────────
def _drawn(document: Document) -> list[tuple[str, Figures]]:
    return [(cell, rows.typical(runs).figures) for cell, runs in document.cells().items()]


def _overview(document: Document) -> Iterator[str]:
    cells = _drawn(document)
    yield "<h2>All runs</h2>"
    yield table(rows.OVERVIEW, ((*rows.overview(run), words.status(run)) for run in document.runs))
    again = f"; {escape(ending.AGAIN)}" if any(run.repeat for run in document.runs) else ""
    yield f'<p class="quiet">latencies in ms{again}</p>'
    if lines := list(repeats.lines(document)):
        yield table(repeats.HEADS, lines)
        yield f'<p class="quiet">{escape(repeats.TITLE)}; pictures show the run in the middle, by TTFT p50</p>'
    drawn = [("throughput against latency", plots.trade_off([("TTFT", cells)]))] if len(cells) > 1 else []
    if any(figures.attainment is not None for _cell, figures in cells):
        drawn.append(("share within the limits", plots.attainment(cells)))
    yield pictures(drawn)


def _run(run: Run) -> Iterator[str]:
    figures, verdict = run.figures, run.verdict
    yield f"<h2>{escape(rows.title(run))}</h2>"
    colour = "INVALID" if any(ending.failing(run)) else verdict.status
    yield f'<p><span class="verdict {colour}">{escape(ending.verdict(run))}</span></p>'
    client = f"{run.client.host}, {run.client.processes} process(es), {run.client.placement}"
    yield (
        f'<p class="quiet">{escape(str(run.target["url"]))} · {escape(str(run.options.get("model")))} · '
        f"{escape(words.load(run.options))} · {escape(run.started)} · load from {escape(client)}</p>"
    )
    if verdict.missed:
        yield "<ul>" + "".join(f"<li><b>missed: {escape(text)}</b></li>" for text in verdict.missed) + "</ul>"
    if lines := words.behind(run):
        yield f'<p class="quiet">{"<br>".join(map(escape, lines))}</p>'
    yield _list((*verdict.warnings, *ending.notes(run)))
    yield pictures(_drawings(figures))
    yield _latency_table("Latency, ms", rows.latencies(figures), rows.adjusted(figures))
    if rows.few(figures):
        yield f'<p class="quiet">{escape(words.FEW)}</p>'
    split = rows.router(figures)
    if split:
        yield _latency_table(rows.ROUTER_TITLE, split)
        if said := rows.router_sum(figures):
            yield f'<p class="quiet">{escape(said)}</p>'
    if run.direct is not None:
        yield _latency_table("Past the router, ms", rows.latencies(run.direct))
        yield _failures("past the router: ", run.direct.counts)
        yield _list(rows.overhead(run))
    if sizes := rows.sizes(figures):
        yield _latency_table("Tokens", sizes)
    every = (*rows.rates(run), *rows.cache(run))
    facts = [(fact.label, rows.number(fact.value), fact.unit) for fact in every]
    facts += rows.attained(figures)
    yield table(("Rates", "", ""), facts, kind="facts")
    if figures.workers:
        yield table(rows.WORKERS, rows.workers(figures))
    yield _failures("", figures.counts)
    options = msgspec.json.format(msgspec.json.encode(run.options), indent=1).decode()
    yield f"<details><summary>Options</summary><pre>{escape(options)}</pre></details>"


def _drawings(figures: Figures) -> Iterator[tuple[str, bytes]]:
    curves = [
        (label, figures.latency[key])
        for key, label in (("ttft", "first token"), ("e2el", "end to end")) if key in figures.latency
    ]
    if curves:
        yield "latency distribution", plots.distribution(curves, "Latency")
    between = [
        (label, figures.latency[key])
        for key, label in (("icl", "between chunks"), ("tpot", "per output token")) if key in figures.latency
    ]
    if between:
        yield "time between tokens", plots.distribution(between, "Between tokens")
    if figures.seconds:
        yield "requests over time", plots.over_time(figures)
        yield "tokens over time", plots.tokens_over_time(figures)
    if figures.points:
        yield "every request", plots.requests(figures)
    if len(figures.workers) > 1:
        yield "requests by worker", plots.workers(figures.workers)


def _failures(of: str, counts: Counts) -> str:
    lines = [(kind, f"{many:,}", said) for kind, many, said in words.failures(counts)]
    head = f"<p>{escape(of + words.counted(counts))}</p>"
    return head + (table(("Failure", "requests", "first message"), lines) if lines else "")


def _latency_table(
    title: str, found: Sequence[rows.Latency], adjusted: Sequence[rows.Adjusted] = ()
) -> str:
    heads = (title, *(rows.HEADS.get(name, name) for name in rows.STATISTICS), "n")
    lines = [(row.label, *_cells(row.figures)) for row in found]
    lines += [(row.label, *(row.cells.get(name, "") for name in rows.STATISTICS), "") for row in adjusted]
    return table(heads, lines)


def _cells(figures: Distribution) -> list[str]:
    return [*(rows.milliseconds(figures, name) for name in rows.STATISTICS), f"{figures.n:,}"]


# ── pieces of HTML ───────────────────────────────────────────────────────────────────────────────────
def whole(title: str, subtitle: str, parts: Iterable[str]) -> str:
    """A page with its style inside."""
    style = files("infera_cli.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width">\n<style>\n{style}</style></head>\n<body>'
        f'<h1>{escape(title)}</h1><p class="quiet">{escape(subtitle)}</p>\n'
        + "\n".join(parts) + "\n</body></html>\n"
    )


def _list(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>" if lines else ""


def pictures(drawn: Iterable[tuple[str, bytes]]) -> str:
    """SVGs by name, inside the page."""
    images = "".join(
        f'<img alt="{escape(name)}" src="data:image/svg+xml;base64,{base64.b64encode(svg).decode()}">'
        for name, svg in drawn
    )
    return f'<div class="plots">{images}</div>'


def table(
    heads: Sequence[str], lines: Iterable[Sequence[str]], *, kind: str = "", kinds: Sequence[str] = ()
) -> str:
    """A table; `kinds` are classes of the lines."""
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = []
    for place, line in enumerate(lines):
        name = f' class="{escape(kinds[place])}"' if kinds else ""
        body.append(f"<tr{name}>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>")
    return f'<table class="{kind}"><tr>{top}</tr>' + "".join(body) + "</table>"
