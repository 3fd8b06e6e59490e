"""Which figures a report shows, under which names, in which order and unit: one list for every form."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from infera_cli.workload import text
from infera_cli.workload.comparison import compare
from infera_cli.workload.distribution import Distribution, enough
from infera_cli.workload.figures import Figures, Rates, imbalance
from infera_cli.workload.names import CONVERSATIONS
from infera_cli.workload.result import Run

STATISTICS = ("mean", "p50", "p90", "p95", "p99", "p999", "max")
SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
HEADS = {"p999": "p99.9"}

LATENCIES = {
    "ttft": ("TTFT", "from sending to the first token"),
    "ttft_sched": ("TTFT from schedule", "from the planned instant to the first token"),
    "tpot": ("TPOT", "(last - first token) / (tokens - 1)"),
    "tpot_adj": ("TPOT, first chunk aside", "(last - first token) / (tokens - those of the first chunk)"),
    "itl": ("ITL", "between tokens, where the tokens of each chunk are known"),
    "icl": ("ICL", "between chunks that carry tokens"),
    "e2el": ("E2EL", "from sending to the last token"),
    "e2el_sched": ("E2EL from schedule", "from the planned instant to the last token"),
    "ttfo": ("first visible token", "as TTFT, reasoning passed over"),
    "head": ("response headers", "from sending to the status line"),
    "connect": ("connect", "until the connection was ready"),
    "queue": ("client queue", "waiting for a place below --max-concurrency"),
    "predecessor": ("wait for the turn before", "a recorded turn's, whose time came before that was answered"),
    "lag": ("send lag", "how late the load generator itself was"),
}
ROUTER = {
    "client_connect": ("connect", "until the connection was ready"),
    "client_to_router": ("client ↔ router", "network and relaying, to the first byte"),
    "queue": ("queue in router", "waiting for admission"),
    "pick": ("pick", "choosing the worker"),
    "worker_first_token": ("worker, to the first token", "from the router's sending on, its relaying included"),
    "upstream": ("  to its first byte", "of that, from the router's sending to the worker's first byte"),
    "worker_answer": ("worker, first to last token", "the rest of the answer, its relaying included"),
}
ROUTER_TITLE = "client → router → worker, ms"
ROUTER_SUM = "the means but for “to its first byte” add up to E2EL, those before the last row to TTFT"
SIZES = {
    "asked_input_tokens": "input tokens asked for", "input_tokens": "input tokens",
    "output_tokens": "output tokens", "tokens_per_chunk": "tokens per chunk",
}


class Latency(NamedTuple):
    """A row of the latency table; `figures` in milliseconds."""

    key: str
    label: str
    meaning: str
    figures: Distribution


class Fact(NamedTuple):
    """A number with a name and a unit; None: there is none."""

    label: str
    value: float | None
    unit: str


def latencies(figures: Figures) -> list[Latency]:
    """The latency rows, in milliseconds."""
    found = figures.latency
    return [
        Latency(key, label, meaning, found[key].scaled(1e3))
        for key, (label, meaning) in LATENCIES.items()
        if key in found and not _says_nothing(key, found)
    ]


def _says_nothing(key: str, found: dict[str, Distribution]) -> bool:
    """A queue that never held anybody, a first visible token that always was the first token, first chunks of one."""
    if key in ("queue", "predecessor"):
        return found[key].max == 0
    if key == "tpot_adj":
        return "tpot" in found and found[key].mean == found["tpot"].mean
    return key == "ttfo" and "ttft" in found and found[key].mean == found["ttft"].mean


def typical(runs: Sequence[Run]) -> Run:
    """Of the runs of one load the one in the middle, by TTFT p50; cut off and INVALID ones if there are no others."""
    sound = [run for run in runs if not run.partial and run.verdict.status != "INVALID"] or list(runs)
    return sorted(sound, key=_ttft)[(len(sound) - 1) // 2]


def _ttft(run: Run) -> float:
    found = run.figures.latency.get("ttft")
    return math.inf if found is None else found.p50


def router(figures: Figures) -> list[Latency]:
    """How the time splits between client, a router of ours and its worker, in milliseconds."""
    found = figures.router
    known = [
        Latency(key, label, meaning, found[key].scaled(1e3))
        for key, (label, meaning) in ROUTER.items() if key in found
    ]
    others = [Latency(key, key, "", found[key].scaled(1e3)) for key in found if key not in ROUTER]
    return known + others


def router_sum(figures: Figures) -> str:
    """What adds up there; nothing where the means that are shown do not, as where an answer lacks a part of them."""
    parts = {row.key: row.figures.mean for row in router(figures) if row.key != "upstream"}
    answer = parts.pop("worker_answer", None)
    if answer is None or "worker_first_token" not in parts:
        return ""
    first = math.fsum(parts.values())
    whole = figures.latency
    adds_up = _adds_up(first, whole.get("ttft")) and _adds_up(first + answer, whole.get("e2el"))
    return ROUTER_SUM if adds_up else ""


def _adds_up(found: float, whole: Distribution | None) -> bool:
    """Whether milliseconds are the mean of `whole`, in seconds, as far as anybody sees: 1 %, or 0.1 ms."""
    return whole is not None and math.isclose(found, whole.mean * 1e3, rel_tol=0.01, abs_tol=0.1)


def overhead(run: Run) -> list[str]:
    """What the router adds to the time to the first token, from the half of the load that went past it."""
    if run.direct is None:
        return []
    found = []
    for row in compare([run.direct], [run.figures], text.dice(1, "overhead")):
        if row.metric == "ttft" and row.low is not None and row.high is not None:
            low, high = row.low * row.a * 1e3, row.high * row.a * 1e3
            added = (row.b - row.a) * 1e3
            found.append(f"the router adds to TTFT {row.statistic}: {added:+.2f} ms ({low:+.2f} … {high:+.2f})")
    return found


class Adjusted(NamedTuple):
    """A row of percentiles in which every failed request counts as one that never ended; `cells` are milliseconds by
    name, as people read them."""

    key: str
    label: str
    cells: dict[str, str]


def adjusted(figures: Figures) -> list[Adjusted]:
    """Such rows, where requests failed."""
    return [
        Adjusted(
            key, f"{LATENCIES[key][0]}, failures as ∞",
            {name: "∞" if value is None else _plain(value * 1e3) for name, value in found.items()},
        )
        for key, found in figures.adjusted.items()
    ]


def sizes(figures: Figures) -> list[Latency]:
    """Lengths in tokens, with the same figures as latencies."""
    return [Latency(key, label, "", figures.sizes[key]) for key, label in SIZES.items() if key in figures.sizes]


def rates(run: Run) -> Iterator[Fact]:
    """Everything per second, and what goes with it; what this run does not have is left out."""
    return (fact for fact in _rates(run) if fact.value is not None)


def _rates(run: Run) -> Iterator[Fact]:
    figures = run.figures
    found, counts = figures.rates, figures.counts
    dataset = run.options.get("dataset", {})
    talks = dataset.get("name") in CONVERSATIONS or dataset.get("multi_turn")
    yield Fact("asked rate", found.offered_requests, "conversations/s" if talks else "req/s")
    if found.offered_requests is not None:
        yield Fact("reached rate", found.achieved_requests, "conversations/s" if talks else "req/s")
    yield Fact("sent, between first and last request", found.sent_requests if counts.sent > 1 else None, "req/s")
    yield Fact("completed, whole run", found.overall_requests, "req/s")
    yield Fact("completed, steady part", found.steady_requests, "req/s")
    yield Fact("completed, between first and last completion", found.between_completions, "req/s")
    yield Fact("input, whole run", found.overall_input_tokens or None, "tok/s")     # 0 in results of before
    yield Fact("output, whole run", found.overall_output_tokens, "tok/s")
    yield Fact("input and output, whole run", found.overall_tokens, "tok/s")
    yield Fact("input, steady part", found.steady_input_tokens, "tok/s")
    yield Fact("output, steady part", found.steady_output_tokens, "tok/s")
    yield Fact("input and output, steady part", steady_tokens(found), "tok/s")
    yield Fact("output, busiest second", found.peak_output_tokens, "tok/s")
    yield Fact("goodput", found.goodput, "req/s")
    yield Fact("whole run", found.window_s, "s")
    yield Fact("open requests, mean", figures.concurrency.mean, "")
    yield Fact("open requests, peak", float(figures.concurrency.peak), "")
    yield Fact("client CPU, busiest process", run.client.cpu_max * 100, "% of a core")


def steady_tokens(found: Rates) -> float | None:
    """Input and output of the steady part; None where one of them is not known."""
    both = (found.steady_input_tokens, found.steady_output_tokens)
    return None if None in both else sum(filter(None, both))


def cache(run: Run) -> Iterator[Fact]:
    """Prefix-cache hits, real ones and those the router predicted, and how evenly the workers were used."""
    figures, counts = run.figures, run.figures.counts
    if counts.cached_tokens is not None and counts.input_tokens:
        yield Fact("prefix-cache hits", 100 * counts.cached_tokens / counts.input_tokens, "% of input")
    if looked_up := run.target.get("engine_prompt_tokens"):
        found = 100 * run.target["engine_cached_tokens"] / looked_up
        yield Fact("prefix-cache hits, by the engines' counters", found, "% of prompts")
    predicted = run.target.get("predicted_cached_tokens")
    if predicted is not None and counts.input_tokens:
        yield Fact("prefix-cache hits, predicted by the router", 100 * predicted / counts.input_tokens, "% of input")
    if len(figures.workers) > 1:
        yield Fact("imbalance (busiest / mean)", imbalance(figures.workers), "×")


def attained(figures: Figures) -> Iterator[tuple[str, str, str]]:
    """(what, share, counts) of the requests within the limits: all of these, then each."""
    found = figures.attainment
    if found is None or not found.judged:
        return
    yield "within all limits", f"{found.good / found.judged:.1%}", f"{found.good:,} of {found.judged:,}"
    for kind, limit in found.limits.items():
        met = found.met[kind]
        yield f"  {kind} ≤ {limit * 1e3:g} ms", f"{met / found.judged:.1%}", f"{met:,} of {found.judged:,}"


def in_limits(figures: Figures) -> str:
    """The share of requests within all limits, for a table of runs."""
    return next((share for _what, share, _counts in attained(figures)), "-")


WORKERS = ("worker", "ok", "share", "failed", "input tok", "cached", "output tok", "TTFT p50 ms")


def workers(figures: Figures) -> Iterator[tuple[str, ...]]:
    """A line of WORKERS each."""
    total = sum(worker.requests for worker in figures.workers) or 1
    told = figures.counts.cached_tokens is not None
    for worker in figures.workers:
        yield (
            worker.worker, f"{worker.requests:,}", f"{worker.requests / total:.1%}", f"{worker.failed:,}",
            f"{worker.input_tokens:,}" if worker.input_tokens else "-",
            f"{worker.cached_tokens / worker.input_tokens:.1%}" if told and worker.input_tokens else "-",
            f"{worker.output_tokens:,}", number(worker.ttft_p50 * 1e3) if worker.ttft_p50 is not None else "-",
        )


OVERVIEW = (
    "", "req/s", "out tok/s", "TTFT p50", "TTFT p99", "TPOT p50", "E2EL p99", "failed", "in limits", "verdict",
)
"""Latencies in milliseconds."""


def overview(run: Run) -> tuple[str, ...]:
    """A line of OVERVIEW but for the verdict."""
    figures = run.figures
    latency = [
        milliseconds(figures.latency[key].scaled(1e3), name) if key in figures.latency else "-"
        for key, name in (("ttft", "p50"), ("ttft", "p99"), ("tpot", "p50"), ("e2el", "p99"))
    ]
    return (
        title(run), number(figures.rates.overall_requests), number(figures.rates.overall_output_tokens), *latency,
        failed(run), in_limits(figures),
    )


def failed(run: Run) -> str:
    """The failed requests of a run, those past the router told apart."""
    through = f"{run.figures.counts.failed:,}"
    past = run.direct.counts.failed if run.direct is not None else 0
    return f"{through} + {past:,} past" if past else through


def number(value: float | None) -> str:
    """A number as people write it: four significant digits, thousands apart; `-` for none."""
    if value is None:
        return "-"
    if value == float("inf"):
        return "∞"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 0.001 else f"{value:.2g}"


def milliseconds(figures: Distribution, name: str) -> str:
    """One cell of the latency table; `~` marks a percentile that has too few samples behind it."""
    share = SHARES.get(name)
    if share is None and name not in ("mean", "std", "min", "max"):
        share = float(name[1:]) / 100
        value = figures.quantile(share)
    else:
        value = float(getattr(figures, name))
    few = share is not None and not enough(figures.n, share)
    return f"{value:,.1f}~" if few and value >= 100 else f"{value:.2f}~" if few else _plain(value)


def few(figures: Figures, statistics: Sequence[str] = STATISTICS) -> bool:
    """Whether any percentile of the latencies is marked so."""
    return any(
        milliseconds(found, name).endswith("~") for found in figures.latency.values() for name in statistics
    )


def _plain(value: float) -> str:
    return f"{value:,.1f}" if value >= 100 else f"{value:.2f}"


def title(run: Run) -> str:
    """A run by cell and repetition."""
    return f"{run.cell or 'run'}{f' #{run.repeat + 1}' if run.repeat else ''}"
