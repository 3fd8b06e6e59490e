"""From samples to figures, in one pass, so that a spool of any length can be read through it.

Definitions are those of bench-and-cli §0.3; each figure says there what it is. Latencies are over successes
only, tokens over successes and what the end of the run cut off, the window over everything that was sent
(R157, R158). Warm-up is not in any of them.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import accumulate, pairwise

from infera_cli.workload import goodput, windows
from infera_cli.workload.distribution import PERCENTILES, Distribution, Micros, Values, with_failures
from infera_cli.workload.figures import Attainment, Counts, Figures, Rates, Share
from infera_cli.workload.sample import NOT_SENT, UNSENT, Sample

POINTS = 2000   # at most so many requests are kept as points for a plot
BATCHES = 50   # time-ordered means, for confidence intervals
ADJUSTED = ("ttft", "e2el")
CUT_OFF = "cut_off"     # the source of tokens that were counted by chunks, as usage had not come yet


class Tally:
    """Add samples, then ask for `figures`."""

    def __init__(self, slos: tuple[goodput.Slo, ...] = ()) -> None:
        self._latency: dict[str, Values] = defaultdict(Values)
        self._sizes: dict[str, Values] = defaultdict(Values)
        self._router: dict[str, Values] = defaultdict(Values)
        self._icl, self._itl = Micros(), Micros()
        self._starts, self._ends, self._completions = array("d"), array("d"), array("d")
        self._failures: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._sources: Counter[str] = Counter()
        self._odd_usage: Counter[str] = Counter()
        self._numbers: Counter[str] = Counter()
        self._timeline, self._prompts, self._answered = windows.Timeline(), windows.Moments(), windows.Moments()
        self._goodput = goodput.Goodput(slos)
        self._workers: dict[str, _Worker] = defaultdict(_Worker)
        self._seconds: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
        self._cached_known = False
        self._points: list[tuple[float, float, float]] = []
        self._stride = 1
        self._last_arrival = 0.0

    def update(self, samples: Iterable[Sample]) -> Tally:
        """Add many."""
        for sample in samples:
            self.add(sample)
        return self

    def add(self, sample: Sample) -> None:
        """Add one; warm-up is passed over."""
        if not sample.measured:
            return
        self._goodput.add(sample)
        if sample.outcome == NOT_SENT:
            self._failures[NOT_SENT] += 1
            return
        if sample.outcome == UNSENT:
            self._numbers["unsent"] += 1
            return
        self._window(sample)
        if sample.failed:
            self._fail(sample)
            return
        self._tokens(sample)
        if sample.ok:
            self._success(sample)

    # ── pieces of `add` ──────────────────────────────────────────────────────────────────────────────
    def _window(self, sample: Sample) -> None:
        self._numbers["sent"] += 1
        self._numbers["resent"] += sample.resent
        if sample.turn == 0:
            self._numbers["arrived"] += 1
            self._last_arrival = max(self._last_arrival, sample.sent)
        self._starts.append(sample.sent)
        self._ends.append(sample.end)
        self._seconds[int(sample.sent)][0] += 1
        self._latency["lag"].add(max(sample.sent - sample.due, 0.0))
        if sample.scheduled is not None:
            waited = round(sample.due - sample.scheduled, 6)
            held = "predecessor" if sample.turn else "queue"
            self._latency[held].add(waited if waited > 0 else 0.0)   # -0.0 is no wait, either

    def _fail(self, sample: Sample) -> None:
        self._failures[sample.outcome] += 1
        self._examples.setdefault(sample.outcome, sample.error)
        self._seconds[int(sample.end)][2] += 1
        self._workers[sample.worker].failed += 1

    def _tokens(self, sample: Sample) -> None:
        tokens, source = sample.tokens()
        if sample.ok or tokens:
            self._sources[source if sample.ok or source != "chunks" else CUT_OFF] += 1
        self._numbers["output"] += tokens
        self._numbers["input"] += sample.input or 0
        self._prompts.add(sample.end if sample.first is None else sample.first, sample.input or 0)
        if sample.cached is not None:
            self._cached_known = True
            self._numbers["cached"] += sample.cached
        worker = self._workers[sample.worker]
        worker.input += sample.input or 0
        worker.cached += sample.cached or 0
        worker.output += tokens
        self._spread(sample, tokens)

    def _spread(self, sample: Sample, tokens: int) -> None:
        """Put the tokens where they arrived; chunks of unknown size share them evenly."""
        if sample.first is None or not sample.events:
            at = sample.end if sample.last is None else sample.last
            self._timeline.add(at, tokens)
            self._seconds[int(at)][3] += tokens
            return
        weights = sample.known_weights()
        even = tokens / sample.events
        at = sample.first
        for place, gap in enumerate((0, *sample.gap_list())):
            at += gap / 1e6
            weight = weights[place] if weights else even
            self._timeline.add(at, weight)
            self._seconds[int(at)][3] += weight

    def _success(self, sample: Sample) -> None:
        self._numbers["ok"] += 1
        self._completions.append(sample.end)
        self._answered.add(sample.end, 1)
        self._seconds[int(sample.end)][1] += 1
        worker = self._workers[sample.worker]
        worker.requests += 1
        self._times(sample)
        self._chunks(sample)
        self._lengths(sample)
        ttft = goodput.value(sample, "ttft")
        if ttft is not None:
            worker.ttft.add(ttft)
        self._point(sample, ttft)
        self._split(sample)

    def _times(self, sample: Sample) -> None:
        for kind in ("ttft", "ttft_sched", "e2el", "e2el_sched"):
            found = goodput.value(sample, kind)
            if found is not None:
                self._latency[kind].add(found)
        per_token = goodput.tpot(sample)
        if per_token is not None:
            self._latency["tpot"].add(per_token)
        self._adjust(sample)
        moments = {"connect": sample.connected, "head": sample.head, "ttfo": sample.first_content}
        for name, end in moments.items():
            if end is not None:
                self._latency[name].add(end - sample.sent)
        if sample.last is not None:
            self._latency["tail"].add(sample.end - sample.last)

    def _adjust(self, sample: Sample) -> None:
        """TPOT without the tokens that the first chunk brought, where it is known how many these were."""
        tokens, weights = sample.tokens()[0], sample.known_weights()
        if weights and sample.first is not None and sample.last is not None and tokens > weights[0]:
            self._latency["tpot_adj"].add((sample.last - sample.first) / (tokens - weights[0]))

    def _chunks(self, sample: Sample) -> None:
        gaps = sample.gap_list()
        self._icl.update(gaps)
        self._numbers["together"] += gaps.count(0)
        if not sample.events:
            return
        tokens, source = sample.tokens()
        weights = sample.known_weights()
        if source != "chunks":
            self._sizes["tokens_per_chunk"].add(tokens / sample.events)
        if weights:
            for gap, weight in zip(gaps, weights[1:], strict=True):
                if weight:
                    self._itl.add(gap // weight, weight)
        elif tokens == sample.events:
            self._itl.update(gaps)

    def _lengths(self, sample: Sample) -> None:
        tokens, _source = sample.tokens()
        self._sizes["output_tokens"].add(tokens)
        if sample.input is not None:
            self._sizes["input_tokens"].add(sample.input)
        if sample.asked is not None:
            self._sizes["asked_input_tokens"].add(sample.asked)
        if sample.odd_usage:
            self._odd_usage[sample.odd_usage] += 1
        elif sample.wanted is not None and tokens != sample.wanted:
            self._numbers["wrong"] += 1

    def _split(self, sample: Sample) -> None:
        """Where the time went, when the router says how long its worker took to its first byte.

        What follows that byte is the worker's, too, and whatever relaying it cost, of which nobody tells: down to the
        first token the parts add up to TTFT, and with the rest of the answer to E2EL.
        """
        for name, seconds in sample.timing.items():
            self._router[name].add(seconds)
        upstream = sample.timing.get("upstream")
        if upstream is None or sample.head is None:
            return
        begin = sample.connected if sample.connected is not None else sample.sent
        self._router["client_connect"].add(begin - sample.sent)
        self._router["client_to_router"].add(max(sample.head - begin - sum(sample.timing.values()), 0.0))
        if sample.first is not None and sample.last is not None:
            self._router["worker_first_token"].add(upstream + sample.first - sample.head)
            self._router["worker_answer"].add(sample.last - sample.first)

    def _point(self, sample: Sample, ttft: float | None) -> None:
        """Keep an even thinning of all requests: every 2^k-th, k growing as they get many."""
        if self._numbers["ok"] % self._stride or ttft is None or sample.last is None:
            return
        self._points.append((sample.sent, ttft, sample.last - sample.sent))
        if len(self._points) > POINTS:
            self._points = self._points[::2]
            self._stride *= 2

    # ── figures ──────────────────────────────────────────────────────────────────────────────────────
    def figures(
        self, planned: int | None = None, offered: float | None = None, span: float | None = None
    ) -> Figures:
        """All figures; `planned` requests, `offered` requests/s and the `span` in seconds are the arrival plan's."""
        open_requests = windows.concurrency(self._starts, self._ends)
        pools = {name: pool.figures() for name, pool in self._latency.items()}
        pools |= {"icl": self._icl.figures(), "itl": self._itl.figures()}
        return Figures(
            counts=self._counts(planned),
            rates=self._rates(offered, span, open_requests),
            concurrency=open_requests,
            latency={name: found for name, found in pools.items() if found is not None},
            adjusted=self._adjusted(),
            sizes=_known(self._sizes),
            router=_known(self._router),
            workers=tuple(worker.share(name) for name, worker in sorted(self._workers.items()) if name),
            attainment=self._attainment(),
            batches={name: batch_means(self._latency[name].values) for name in ("ttft", "tpot", "e2el")},
            points=tuple(self._points),
            seconds=tuple((float(at), *row) for at, row in sorted(self._seconds.items())),
        )

    def _counts(self, planned: int | None) -> Counts:
        failures = dict(sorted(self._failures.items()))
        failed = sum(self._failures.values())
        sent = self._numbers["sent"]
        not_sent = self._failures[NOT_SENT]
        return Counts(
            planned=planned, arrived=self._numbers["arrived"], sent=sent,
            ok=self._numbers["ok"], failed=failed,
            incomplete=sent - self._numbers["ok"] - (failed - not_sent), not_sent=not_sent, failures=failures,
            examples=self._examples,
            input_tokens=self._numbers["input"] or None, output_tokens=self._numbers["output"],
            cached_tokens=self._numbers["cached"] if self._cached_known else None,
            sources=dict(self._sources), tokens_wrong=self._numbers["wrong"],
            unsent=self._numbers["unsent"], together=self._numbers["together"],
            resent=self._numbers["resent"], odd_usage=dict(sorted(self._odd_usage.items())),
        )

    def _rates(self, offered: float | None, span: float | None, open_requests: windows.Concurrency) -> Rates:
        window = max(self._ends) - min(self._starts) if self._starts else 0.0

        def rate(amount: float) -> float:
            return amount / window if window > 0 else 0.0

        sending = max(self._starts) - min(self._starts) if self._starts else 0.0
        begin, end = open_requests.steady_start, open_requests.steady_end
        long_enough = end - begin > windows.ENOUGH_STEADY * window

        def steady(of: windows.Timeline | windows.Moments) -> float | None:
            return of.within(begin, end) / (end - begin) if long_enough else None

        late = max(0.0, self._last_arrival - span) if span else 0.0
        output = rate(self._numbers["output"])
        told = self._numbers["input"] > 0      # no prompt is empty: 0 is of a server that does not say
        good = rate(self._goodput.good) if self._goodput.slos else None
        return Rates(
            window_s=window, offered_requests=offered,
            sent_requests=(len(self._starts) - 1) / sending if sending > 0 else 0.0,
            overall_requests=rate(self._numbers["ok"]),
            between_completions=windows.completion_rate(self._completions),
            overall_input_tokens=rate(self._numbers["input"]) if told else None, overall_output_tokens=output,
            overall_tokens=rate(self._numbers["input"] + self._numbers["output"]) if told else None,
            peak_output_tokens=self._timeline.peak(window, output), steady_s=end - begin,
            steady_requests=steady(self._answered), steady_input_tokens=steady(self._prompts) if told else None,
            steady_output_tokens=steady(self._timeline), goodput=good, late_s=late,
            achieved_requests=self._numbers["arrived"] / (span + late) if span else None,
        )

    def _adjusted(self) -> dict[str, dict[str, float | None]]:
        failed = sum(self._failures.values())
        if not failed:
            return {}
        return {
            name: {
                f"p{share * 100:g}".replace(".", ""): with_failures(ordered, failed, share)
                for share in PERCENTILES
            }
            for name in ADJUSTED if (ordered := sorted(self._latency[name].values))
        }

    def _attainment(self) -> Attainment | None:
        found = self._goodput
        if not found.slos:
            return None
        limits = {slo.kind: slo.limit for slo in found.slos}
        return Attainment(limits, found.sent, found.good, found.met, found.lost, found.open)


class _Worker:
    def __init__(self) -> None:
        self.requests = self.failed = self.input = self.cached = self.output = 0
        self.ttft = Values()

    def share(self, name: str) -> Share:
        found = self.ttft.figures()
        median = found.p50 if found else None
        return Share(name, self.requests, self.failed, self.input, self.cached, self.output, median)


def _known(pools: dict[str, Values]) -> dict[str, Distribution]:
    return {name: found for name, pool in sorted(pools.items()) if (found := pool.figures()) is not None}


def batch_means(values: array[float]) -> tuple[float, ...]:
    """Means of up to BATCHES runs of neighbours in time, so that what moves together stays together."""
    count = min(BATCHES, len(values))
    edges = [place * len(values) // count for place in range(count + 1)] if count else []
    sums = [0.0, *accumulate(values)]
    return tuple((sums[high] - sums[low]) / (high - low) for low, high in pairwise(edges))
