"""What a report must say of requests whose every moment is known, worked out a second time.

Nothing of `infera_cli` is used here: definitions are those of bench-and-cli §0.3, and where the standard library knows
a figure (percentiles by linear interpolation) it is asked. The same sums are done on what the script of a target
foresees and on what its log holds.
"""

from __future__ import annotations

import heapq
import math
import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

STATISTICS = ("mean", "p50", "p90", "p99", "max")
ADJUSTED = ("p50", "p90", "p95", "p99", "p999")
OK = "ok"
STEADY, DIP, ENOUGH = 0.9, 0.05, 0.2    # of the peak; seconds below it that end nothing; of the window


class Token(NamedTuple):
    """A chunk with tokens: when, how many, whether they are seen (reasoning is not)."""

    at: float
    amount: int = 1
    visible: bool = True


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One request; instants are seconds from the start of the run. `due` is when it could be sent."""

    sent: float
    end: float
    outcome: str = OK
    scheduled: float | None = None
    due: float | None = None
    connected: float | None = None
    head: float | None = None
    tokens: Sequence[Token] = ()
    prompt: int = 0
    cached: int = 0
    split: dict[str, float] = field(default_factory=dict)      # seconds, as the target says in Server-Timing

    @property
    def amount(self) -> int:
        """Output tokens."""
        return sum(token.amount for token in self.tokens)


# ── latencies ────────────────────────────────────────────────────────────────────────────────────────
def times(every: Sequence[Seen]) -> dict[str, list[float]]:
    """Every latency figure, in seconds: over successes, but for those of sending."""
    found: dict[str, list[float]] = {}

    def add(name: str, values: Iterable[float]) -> None:
        if pool := list(values):
            found[name] = pool

    good = [one for one in every if one.outcome == OK]
    planned = [(one, one.scheduled) for one in good if one.scheduled is not None]
    many = [one for one in good if one.amount > 1]
    add("ttft", (one.tokens[0].at - one.sent for one in good))
    add("ttft_sched", (one.tokens[0].at - due for one, due in planned))
    add("tpot", (_span(one) / (one.amount - 1) for one in many))
    add("tpot_adj", (_span(one) / (one.amount - one.tokens[0].amount) for one in many if len(one.tokens) > 1))
    gaps = [(later.at - before.at, later.amount) for one in good for before, later in pairwise(one.tokens)]
    add("itl", (gap / amount for gap, amount in gaps for _ in range(amount)))
    add("icl", (gap for gap, _amount in gaps))
    add("e2el", (one.tokens[-1].at - one.sent for one in good))
    add("e2el_sched", (one.tokens[-1].at - due for one, due in planned))
    add("ttfo", (next(token.at for token in one.tokens if token.visible) - one.sent
                 for one in good if any(token.visible for token in one.tokens)))
    add("head", (one.head - one.sent for one in good if one.head is not None))
    add("connect", (one.connected - one.sent for one in good if one.connected is not None))
    add("tail", (one.end - one.tokens[-1].at for one in good))
    add("queue", (one.due - one.scheduled for one in every if one.due is not None and one.scheduled is not None))
    add("lag", (one.sent - one.due for one in every if one.due is not None))
    return found


def router(every: Sequence[Seen]) -> dict[str, list[float]]:
    """How a router splits the time to the response head, what is left for the way to it and back, and what follows."""
    found: dict[str, list[float]] = {}
    for one in every:
        if one.outcome != OK or not one.split or one.head is None:
            continue
        for name, seconds in one.split.items():
            found.setdefault(name, []).append(seconds)
        begun = one.connected if one.connected is not None else one.sent
        found.setdefault("client_connect", []).append(begun - one.sent)
        found.setdefault("client_to_router", []).append(one.head - begun - sum(one.split.values()))
        found.setdefault("worker_first_token", []).append(one.split["upstream"] + one.tokens[0].at - one.head)
        found.setdefault("worker_answer", []).append(_span(one))
    return found


def sizes(every: Sequence[Seen]) -> dict[str, list[float]]:
    """Lengths in tokens, of successes."""
    good = [one for one in every if one.outcome == OK]
    return {
        "input_tokens": [one.prompt for one in good], "output_tokens": [one.amount for one in good],
        "tokens_per_chunk": [one.amount / len(one.tokens) for one in good],
    }


def _span(one: Seen) -> float:
    return one.tokens[-1].at - one.tokens[0].at


def statistic(values: Sequence[float], name: str) -> float:
    """Mean, max, or a percentile in steps of one, by linear interpolation."""
    if name == "mean":
        return statistics.fmean(values)
    if name == "max" or len(values) == 1:
        return max(values)
    return statistics.quantiles(values, n=100, method="inclusive")[int(name[1:]) - 1]


def adjusted(values: Sequence[float], failed: int, name: str) -> float:
    """A percentile by nearest rank in which every failure took for ever."""
    share = 0.999 if name == "p999" else int(name[1:]) / 100
    every = sorted([*values, *[math.inf] * failed])
    return every[max(math.ceil(share * len(every)), 1) - 1]


# ── counts and limits ────────────────────────────────────────────────────────────────────────────────
def counts(every: Sequence[Seen]) -> dict[str, int]:
    """How many of each kind."""
    good = [one for one in every if one.outcome == OK]
    kinds = Counter(one.outcome for one in every if one.outcome != OK)
    return {
        "sent": len(every), "succeeded": len(good), "failed": len(every) - len(good), **dict(sorted(kinds.items())),
        "input tokens": sum(one.prompt for one in good), "output tokens": sum(one.amount for one in good),
        "cached tokens": sum(one.cached for one in good),
    }


def value(one: Seen, kind: str) -> float:
    """The figure of one success that a limit is held against; an answer of one token has TPOT 0."""
    if kind == "tpot":
        return _span(one) / (one.amount - 1) if one.amount > 1 else 0.0
    begin = one.scheduled if kind.endswith("_sched") else one.sent
    assert begin is not None
    return (one.tokens[0] if kind.startswith("ttft") else one.tokens[-1]).at - begin


def limit(every: Sequence[Seen], kind: str) -> float:
    """A limit for `kind` in tenths of milliseconds that some keep, some miss, and that nobody comes near: amid the
    widest gap between two neighbours, the outer tenths aside."""
    ordered = sorted(value(one, kind) for one in every if one.outcome == OK)
    middle = ordered[len(ordered) // 10 : len(ordered) * 9 // 10 + 1]
    low, high = max(pairwise(middle), key=lambda pair: pair[1] - pair[0])
    return round((low + high) / 2, 4)


def within(every: Sequence[Seen], limits: dict[str, float]) -> dict[str, int]:
    """How many kept each limit, and all of them; who failed kept none."""
    good = [one for one in every if one.outcome == OK]
    kept = {kind: [value(one, kind) <= most for one in good] for kind, most in limits.items()}
    alone = {f"within {kind}": sum(fine) for kind, fine in kept.items()}
    return {**alone, "within all limits": sum(map(all, zip(*kept.values(), strict=True)))} if kept else {}


# ── rates ────────────────────────────────────────────────────────────────────────────────────────────
def rates(every: Sequence[Seen], limits: dict[str, float], asked: float | None = None) -> dict[str, float]:
    """Per second, and how long; `asked` arrivals a second were to be sent."""
    good = [one for one in every if one.outcome == OK]
    first, last = min(one.sent for one in every), max(one.end for one in every)
    window, ends = last - first, sorted(one.end for one in good)
    put_in, put_out = sum(one.prompt for one in good), sum(one.amount for one in good)
    starts = sorted(one.sent for one in every)
    found = {
        "whole run, s": window, "sent/s": (len(every) - 1) / (starts[-1] - starts[0]),
        "answers/s": len(good) / window, "answers/s between completions": (len(good) - 1) / (ends[-1] - ends[0]),
        "input tokens/s": put_in / window, "output tokens/s": put_out / window,
        "tokens/s": (put_in + put_out) / window, "output tokens/s, busiest second": busiest(good),
        "open requests, mean": sum(one.end - one.sent for one in every) / window,
        "open requests, peak": float(peak(every)),
    }
    begin, end = steady(every)
    if end - begin > ENOUGH * window:
        found |= {
            "steady part, s": end - begin,
            "answers/s, steady": sum(begin <= one.end <= end for one in good) / (end - begin),
            "input tokens/s, steady":
                sum(one.prompt for one in good if begin <= one.tokens[0].at <= end) / (end - begin),
            "output tokens/s, steady":
                sum(token.amount for one in good for token in one.tokens if begin <= token.at <= end) / (end - begin),
        }
    if asked is not None:
        found |= {"asked/s": asked, "reached/s": len(every) / max(len(every) / asked, starts[-1])}
    if limits:
        found["good answers/s"] = within(every, limits)["within all limits"] / window
    return found


def busiest(every: Sequence[Seen], span: float = 1.0) -> float:
    """The most tokens of successes within any one second, or another `span`."""
    found = sorted((token.at, token.amount) for one in every if one.outcome == OK for token in one.tokens)
    instants = [at for at, _amount in found]
    before = [0, *accumulate(amount for _at, amount in found)]
    return float(max(before[bisect_left(instants, at + span)] - before[place] for place, at in enumerate(instants)))


def _levels(every: Sequence[Seen]) -> list[tuple[float, int]]:
    """(instant, open from then on); of one instant the ends come first."""
    steps = sorted([(one.sent, 1) for one in every] + [(one.end, -1) for one in every])
    return list(zip((at for at, _step in steps), accumulate(step for _at, step in steps), strict=True))


def peak(every: Sequence[Seen]) -> int:
    """The most requests open at once."""
    return max(level for _at, level in _levels(every))


def steady(every: Sequence[Seen]) -> tuple[float, float]:
    """The longest span with at least nine tenths of the peak open, where a dip of up to DIP seconds ends nothing."""
    enough = STEADY * peak(every)
    spans: list[list[float]] = []
    for (at, level), (until, _next) in pairwise(_levels(every)):
        if level < enough:
            continue
        if spans and at - spans[-1][1] <= DIP:
            spans[-1][1] = until
        else:
            spans.append([at, until])
    begin, end = max(spans, key=lambda span: span[1] - span[0])
    return begin, end


# ── when requests are sent ───────────────────────────────────────────────────────────────────────────
def starts(scheduled: Sequence[float], lasts: Sequence[float], places: int) -> list[float]:
    """When each can be sent, that lasts so long and is due at `scheduled`: in turn, with so many places."""
    free = [0.0] * places
    found = []
    for at, length in zip(scheduled, lasts, strict=True):
        begin = max(at, heapq.heappop(free))
        heapq.heappush(free, begin + length)
        found.append(begin)
    return found


def due(scheduled: Sequence[float], ends: Sequence[float], places: int) -> list[float]:
    """The same, where it is known when each ended: the request after the first `places` needs one end, and so on."""
    freed = sorted(ends)
    return [max(at, freed[place - places]) if place >= places else at for place, at in enumerate(scheduled)]


def lateness(every: Iterable[tuple[float, Sequence[float], Sequence[tuple[float, bytes]]]]) -> float:
    """How late a target wrote, p95 in seconds, from (asked at, writes, script): what else the machine had to do."""
    late = [
        written - begin - step
        for begin, writes, steps in every for written, (step, _data) in zip(writes, steps, strict=False)
    ]
    return statistic(late, "p95") if late else 0.0
