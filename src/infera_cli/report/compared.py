"""Two results side by side, on a terminal; and the cells of such a table for every form."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from infera_cli.report import rows
from infera_cli.report.console import render
from infera_cli.report.tables import Grid
from infera_cli.workload.comparison import Row

ENDS = {"better": "green", "worse": "red"}
NAMES = {
    "overall_requests": "requests, whole run", "overall_output_tokens": "output tokens, whole run",
    "steady_output_tokens": "output tokens, steady part", "failed": "failed requests",
}
HEADS = ("", "", "A", "B", "change", "95 % interval", "B is")
WORDS = (0, 1, 6)


def comparison(
    names: tuple[str, str], cells: dict[str, list[Row]], *, width: int | None = None, colour: bool = False
) -> str:
    """A against B, cell by cell."""
    blocks: list[RenderableType] = [Text(f"A = {names[0]}\nB = {names[1]}\n")]
    for cell, found in cells.items():
        styles = [ENDS.get(row.verdict, "") for row in found]
        table = Grid(HEADS, map(compared, found), title=cell, words=WORDS, left=WORDS, styles=styles)
        blocks += [table, Text()]
    return render(blocks, width=width, colour=colour)


def compared(row: Row) -> tuple[str, ...]:
    """The cells of one row of a comparison; latencies in milliseconds."""
    if row.counts is not None:
        return _share(row, *row.counts)
    unit, scale = ("ms", 1e3) if row.statistic != "rate" else ("/s", 1.0)
    change = "-" if row.change is None else f"{row.change:+.1%}"
    between = "-" if row.low is None or row.high is None else f"{row.low:+.1%} … {row.high:+.1%}"
    a, b = (f"{rows.number(value * scale)} {unit}" for value in (row.a, row.b))
    return NAMES.get(row.metric, row.metric), row.statistic, a, b, change, between, row.verdict


def _share(row: Row, bad_a: int, all_a: int, bad_b: int, all_b: int) -> tuple[str, ...]:
    """Of shares the difference, in percentage points: a share of one that is 0 says nothing."""
    between = "-" if row.low is None or row.high is None else f"{row.low * 100:+.1f} … {row.high * 100:+.1f} pp"
    a, b = f"{bad_a:,} of {all_a:,}", f"{bad_b:,} of {all_b:,}"
    change = f"{(row.change or 0.0) * 100:+.1f} pp"
    return NAMES.get(row.metric, row.metric), row.statistic, a, b, change, between, row.verdict
