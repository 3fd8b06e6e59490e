"""Plots as SVG, drawn with matplotlib's object interface: no global state, no display, the same each time."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from infera_cli.workload.distribution import GRID, Distribution
from infera_cli.workload.figures import Figures, Share

BLUE, ORANGE, GREEN, RED, GREY = "#0072b2", "#d55e00", "#009e73", "#cc3311", "#777777"
COLOURS = (BLUE, ORANGE, GREEN, "#cc79a7", "#e69f00", "#56b4e9")
STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "infera", "font.size": 10, "font.family": "sans-serif",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#e4e4e4",
    "axes.axisbelow": True, "legend.frameon": False, "axes.titlesize": 11, "axes.titlelocation": "left",
}
SIZE = (7.2, 3.3)   # inches
MOST_POINTS = 600
SHORTEST = 0.1      # ms: what is shorter, as between events of one read, is drawn there

logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)


@contextmanager
def _drawing(title: str, x: str, y: str, out: list[bytes]) -> Iterator[Axes]:
    """Axes to draw on; the finished SVG is appended to `out`."""
    with rc_context(STYLE):  # type: ignore[arg-type]  # its stubs list every key as a literal
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        yield axes
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="best", fontsize=9)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        out.append(buffer.getvalue())


def distribution(curves: Sequence[tuple[str, Distribution]], title: str) -> bytes:
    """What share of requests was at or below a latency; latencies in seconds, drawn as ms on a log scale."""
    out: list[bytes] = []
    with _drawing(title, "milliseconds (log)", "share of requests", out) as axes:
        for colour, (label, of) in zip(COLOURS, curves, strict=False):
            shares = [step / GRID for step in range(len(of.curve))]
            times = [max(value * 1e3, SHORTEST) for value in of.curve]
            axes.step(times, shares, where="post", color=colour, label=label)
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis)
        axes.set_ylim(0, 1.02)
        for share in (0.5, 0.9, 0.99):
            axes.axhline(share, color=GREY, linewidth=0.6, linestyle=":")
            axes.annotate(f"p{share * 100:.0f}", (1.0, share), xycoords=("axes fraction", "data"), fontsize=8,
                          color=GREY, va="bottom", ha="right")
    return out[0]


def _plain_ticks(axis: Axis) -> None:
    """Write 20, 50, 100 instead of powers."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def over_time(figures: Figures) -> bytes:
    """Requests sent, completed and failed in each second."""
    out: list[bytes] = []
    seconds, sent, done, failed, _tokens = _columns(figures)
    with _drawing("Requests over time", "seconds from the start", "requests per second", out) as axes:
        axes.step(seconds, sent, where="post", color=GREY, label="sent")
        axes.step(seconds, done, where="post", color=BLUE, label="completed")
        if any(failed):
            axes.step(seconds, failed, where="post", color=RED, label="failed")
        axes.set_ylim(bottom=0)
    return out[0]


def tokens_over_time(figures: Figures) -> bytes:
    """Output tokens in each second, and the mean over the run."""
    out: list[bytes] = []
    seconds, _sent, _done, _failed, tokens = _columns(figures)
    with _drawing("Output tokens over time", "seconds from the start", "tokens per second", out) as axes:
        axes.step(seconds, tokens, where="post", color=GREEN, label="output tokens")
        mean = figures.rates.overall_output_tokens
        axes.axhline(mean, color=GREY, linestyle="--", linewidth=0.9, label=f"mean {mean:,.0f}")
        axes.set_ylim(bottom=0)
    return out[0]


def _columns(figures: Figures) -> tuple[list[float], ...]:
    """Columns of `figures.seconds`, seconds without a row filled with zeros."""
    known = {int(row[0]): row[1:] for row in figures.seconds}
    if not known:
        return [], [], [], [], []
    span = range(min(known), max(known) + 2)    # one more, so that the last step has a width
    filled = [(float(at), *known.get(at, (0.0, 0.0, 0.0, 0.0))) for at in span]
    return tuple(list(column) for column in zip(*filled, strict=True))


def requests(figures: Figures) -> bytes:
    """Each request's TTFT and end-to-end time by the moment it was sent."""
    out: list[bytes] = []
    step = max(1, len(figures.points) // MOST_POINTS)
    points = figures.points[::step]
    with _drawing("Every request", "seconds from the start", "milliseconds (log)", out) as axes:
        when = [at for at, _ttft, _all in points]
        axes.scatter(when, [took * 1e3 for _at, _ttft, took in points], s=6, color=ORANGE, label="end to end")
        axes.scatter(when, [ttft * 1e3 for _at, ttft, _all in points], s=6, color=BLUE, label="first token")
        axes.set_yscale("log")
        _plain_ticks(axes.yaxis)
    return out[0]


def workers(shares: Sequence[Share]) -> bytes:
    """How many requests each worker served."""
    out: list[bytes] = []
    with _drawing("Requests by worker", "requests", "", out) as axes:
        names = [share.worker for share in shares]
        axes.barh(names, [share.requests for share in shares], color=BLUE)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
    return out[0]


def trade_off(series: Sequence[tuple[str, Sequence[tuple[str, Figures]]]]) -> bytes:
    """Throughput against latency: one point a cell of a sweep, one line a result."""
    out: list[bytes] = []
    with _drawing("Throughput and latency", "output tokens per second", "TTFT, ms (log)", out) as axes:
        for colour, (name, cells) in zip(COLOURS, series, strict=False):
            known = [(label, of) for label, of in cells if "ttft" in of.latency]
            x = [of.rates.overall_output_tokens for _label, of in known]
            for statistic, line in (("p50", "-"), ("p99", "--")):
                y = [getattr(of.latency["ttft"], statistic) * 1e3 for _label, of in known]
                label = f"{name} {statistic}".strip()
                axes.plot(x, y, line, color=colour, marker="o", markersize=4, label=label)
            for (label, of), across in zip(known, x, strict=True):
                short, place = label.partition("=")[2] or label, (across, of.latency["ttft"].p50 * 1e3)
                axes.annotate(short, place, fontsize=8, xytext=(3, 4), textcoords="offset points")
        axes.set_yscale("log")
        _plain_ticks(axes.yaxis)
    return out[0]


def attainment(cells: Sequence[tuple[str, Figures]]) -> bytes:
    """The share of requests within the limits, by cell."""
    out: list[bytes] = []
    judged = [(label, of.attainment) for label, of in cells if of.attainment is not None]
    known = [(label, of) for label, of in judged if of.judged]
    with _drawing("Requests within the limits", "", "share", out) as axes:
        axes.bar([label for label, _of in known], [of.good / of.judged for _label, of in known], color=GREEN)
        axes.set_ylim(0, 1.02)
        axes.grid(visible=False, axis="x")
    return out[0]


# ── simulations ──────────────────────────────────────────────────────────────────────────────────────
Lines = Sequence[tuple[str, Sequence[tuple[int, float]]]]
"""By policy: (workers, figure)."""


def within_limits(lines: Lines, wanted: float) -> bytes:
    """The share of requests within their limits by number of workers, and the share that is `wanted`."""
    out: list[bytes] = []
    with _drawing("How many workers", "workers", "requests within the limits, %", out) as axes:
        for colour, (name, points) in zip(COLOURS, lines, strict=False):
            x, y = [workers for workers, _share in points], [share * 100 for _workers, share in points]
            axes.plot(x, y, color=colour, marker="o", markersize=4, label=name)
        axes.axhline(wanted * 100, color=GREY, linestyle="--", linewidth=0.9, label=f"wanted {wanted:.0%}")
        axes.set_ylim(0, 102)
    return out[0]


def over_workers(lines: Lines) -> bytes:
    """TTFT p99 (seconds) by number of workers."""
    out: list[bytes] = []
    with _drawing("How many workers", "workers", "TTFT p99, ms (log)", out) as axes:
        for colour, (name, points) in zip(COLOURS, lines, strict=False):
            x, y = [workers for workers, _time in points], [max(time * 1e3, SHORTEST) for _workers, time in points]
            axes.plot(x, y, color=colour, marker="o", markersize=4, label=name)
        axes.set_yscale("log")
        _plain_ticks(axes.yaxis)
    return out[0]


def by_policy(found: Sequence[tuple[str, float, float, float]]) -> bytes:
    """(policy, mean TTFT, p99, hit rate): bars for the times in ms, the hit rate written on them."""
    out: list[bytes] = []
    with _drawing("Policies on the same requests", "TTFT, ms", "", out) as axes:
        places = range(len(found))
        axes.barh([at - 0.2 for at in places], [mean * 1e3 for _n, mean, _p, _h in found], 0.38, color=BLUE,
                  label="mean")
        axes.barh([at + 0.2 for at in places], [p99 * 1e3 for _n, _m, p99, _h in found], 0.38, color=ORANGE,
                  label="p99")
        axes.set_yticks(list(places), [f"{name}\n{hits:.0%} hits" for name, _m, _p, hits in found])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
    return out[0]
