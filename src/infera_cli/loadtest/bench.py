"""A benchmark from beginning to end: look at the target, run every cell, judge, and hand back a document."""

from __future__ import annotations

import math
import platform
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, Protocol

import msgspec

from infera_cli import __version__
from infera_cli.errors import ConfigError, InferaError
from infera_cli.loadtest import caches, datasets, processes, spool, target
from infera_cli.loadtest import options as asked
from infera_cli.loadtest.job import Job, Progress
from infera_cli.loadtest.options import Options
from infera_cli.loadtest.profiler import profiled
from infera_cli.workload.arrivals import ClosedLoop, OpenLoop, Replay, planned, span
from infera_cli.workload.cutoff import RunEnd
from infera_cli.workload.figures import Figures
from infera_cli.workload.measures import Tally
from infera_cli.workload.names import resolve
from infera_cli.workload.result import Client, Document, Run
from infera_cli.workload.sample import INCOMPLETE, Sample
from infera_cli.workload.search import Search, least_level
from infera_cli.workload.traces import Trace
from infera_cli.workload.verdict import Circumstances, judge

AUTO_LEVELS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
AUTO_GAIN = 1.05        # an automatic sweep ends when a doubling brings less throughput than this


class Plan(msgspec.Struct, frozen=True):
    """What is known of a run before it starts, for the progress display; None where it is open."""

    cell: str
    repeat: int
    requests: int | None
    seconds: float | None


class Watcher(Protocol):
    """Who wants to know how it goes."""

    def begins(self, plan: Plan) -> None:
        """A run is about to start."""

    def goes(self, progress: list[Progress]) -> None:
        """Twice a second and process."""

    def ended(self, run: Run) -> None:
        """A run is over and judged."""


class Bench:
    """Runs benchmarks. `details`, when given, is a file that gets one JSON line per request."""

    def __init__(
        self, options: Options, watcher: Watcher, *, patience: float = 0.0, details: Path | None = None
    ) -> None:
        self._watcher, self._details = watcher, details
        self._options = msgspec.structs.replace(
            options, base_url=target.base(options.base_url),
            dataset=datasets.kept(msgspec.structs.replace(options.dataset, name=resolve(options.dataset.name))),
        )
        for level in first_loads(self._options):
            asked.arrivals(level)
        self._size, self._trace = self._inspect()
        self._about = target.look(self._options, patience)
        self._direct = target.direct_urls(self._options, self._about)
        self._seed = options.seed if options.seed is not None else secrets.randbits(32)
        self._runs: list[Run] = []
        self._broken = ""
        self._findings: dict[str, Any] = {}
        self._cluster: processes.Cluster | None = None
        if options.master:
            self._cluster = processes.Cluster(options.master, options.expect_workers)
        if details is not None:
            details.write_bytes(b"")

    def run(self) -> Document:
        """All cells; what was done until a Ctrl-C or a fault is kept. Raises InferaError."""
        try:
            if self._options.find_max:
                self._find_max(self._options.find_max)
            else:
                self._cells()
        except KeyboardInterrupt:       # between two runs
            if not self._runs:
                raise
            self._findings["interrupted"] = True
            if "find_max" in self._findings:
                self._findings["find_max"]["interrupted"] = True
        except InferaError as error:
            if not self._runs:
                raise
            self._findings["failed"] = error.message
        finally:
            if self._cluster is not None:
                self._cluster.close()
        return Document(tuple(self._runs), __version__, self._findings)

    # ── cells ────────────────────────────────────────────────────────────────────────────────────────
    def _cells(self) -> None:
        if not self._options.sweep:
            self._repeated("", self._options)
            return
        for cell, options in self._levels(*self._options.sweep):
            if not self._repeated(cell, options):
                return

    def _levels(self, kind: str, levels: tuple[float, ...]) -> Iterator[tuple[str, Options]]:
        best = 0.0
        for level in levels or AUTO_LEVELS:
            yield f"{kind}={level:g}", at_level(self._options, kind, level)
            if not levels:
                reached = self._runs[-1].figures.rates.overall_output_tokens
                if reached < AUTO_GAIN * best:
                    return
                best = reached

    def _repeated(self, cell: str, options: Options) -> bool:
        """All repetitions of a cell; False when interrupted, or when a machine is lost that the next would need."""
        for repeat in range(options.repeat):
            if self._runs and options.cooldown:
                sleep(options.cooldown)
            if self._once(cell, repeat, options).partial or (self._broken and self._cluster is not None):
                return False
        return True

    def _find_max(self, kind: str) -> None:
        """Search, and note what is known after every probe: the next may be the one that is cut off."""
        options = self._options
        if not options.slos:
            raise ConfigError("--find-max needs limits to meet: give --goodput, e.g. ttft:300 tpot:30")
        search = Search(options.attainment, least=least_level(kind, options.duration))
        while (level := search.next_level) is not None:
            known = search.evidence.get(level)
            run = self._once(f"{kind}={level}", known.probes if known else 0, at_level(options, kind, level))
            found = run.figures.attainment
            useful = not run.partial and not self._broken and found is not None
            if useful and found is not None:
                search.tell(found.good, found.judged, sound=run.verdict.status != "INVALID")
            self._findings["find_max"] = {
                "kind": kind, "attainment": options.attainment, "passed": search.low, "failed": search.high,
                "finished": search.next_level is None, "interrupted": run.partial,
                "broken": bool(self._broken),
                "evidence": {str(level): msgspec.to_builtins(known) for level, known in search.evidence.items()},
            }
            if not useful:
                return

    # ── one run ──────────────────────────────────────────────────────────────────────────────────────
    def _once(self, cell: str, repeat: int, options: Options) -> Run:
        seed = asked.seed_for(options, self._seed, cell, repeat)
        job = asked.job_for(options, self._about.model, seed, self._direct)
        count, length = self._expected(job)
        self._watcher.begins(Plan(cell, repeat, count, length))
        started = datetime.now(UTC).isoformat(timespec="seconds")
        before: list[caches.Caches] = []    # when the warm-up, which finds and fills caches, was over
        look = partial(caches.look, options, self._about)
        with tempfile.TemporaryDirectory(prefix="infera-bench-") as folder:
            with profiled(options, self._about) if options.profile else nullcontext():
                outcome = self._load(job, options, Path(folder), lambda: before.append(look()))
            self._broken = outcome.broken
            figures, direct = self._measure(Plan(cell, repeat, count, length), options, job, outcome)
        told = caches.grown(before[0], look()) if before else {}
        around = self._around(options, outcome, count, caches.share(told))
        run = Run(
            cell=cell, repeat=repeat, started=started, partial=outcome.interrupted,
            options={**_effective(options, job, count), "seed": seed, "model": self._about.model},
            target={
                "url": options.base_url, "models": list(self._about.models),
                "workers": self._about.workers, "router": self._about.router,
                **told,
            },
            client=Client(
                platform.node(), options.expect_workers if options.master else len(outcome.spools), outcome.cpu_max,
                outcome.cpu_mean, options.placement or target.placement(options),
            ),
            figures=figures, direct=direct, verdict=judge(figures, around, direct),
        )
        self._runs.append(run)
        self._watcher.ended(run)
        return run

    def _load(
        self, job: Job, options: Options, folder: Path, begins: processes.Beginning
    ) -> processes.Outcome:
        if self._cluster is not None:
            sent = msgspec.structs.replace(job, dataset=datasets.kept(job.dataset, elsewhere=True))
            return self._cluster.run(sent, folder, self._watcher.goes, begins)
        return processes.local(job, options.processes, folder, self._watcher.goes, begins)

    def _measure(
        self, plan: Plan, options: Options, job: Job, outcome: processes.Outcome
    ) -> tuple[Figures, Figures | None]:
        """The figures of the router, and with --direct those of the workers themselves."""
        routed, direct = Tally(options.slos), Tally()
        for sample in _judged(spool.samples(outcome.spools), options, outcome):
            (direct if sample.direct else routed).add(sample)
            if self._details is not None and sample.measured:
                _append(self._details, plan, sample)
        count = plan.requests
        span = None if isinstance(job.arrivals, ClosedLoop) else plan.seconds
        offered = count / span if count and span else None
        if not self._direct:
            return routed.figures(count, offered, span), None
        halved = offered / 2 if offered else None
        return routed.figures(None, halved, span), direct.figures(None, halved, span)

    def _around(
        self, options: Options, outcome: processes.Outcome, planned: int | None, engine_hits: float | None
    ) -> Circumstances:
        return Circumstances(
            engine_hits=engine_hits,
            cpu=outcome.cpu_max, interrupted=outcome.interrupted, max_error_rate=options.max_error_rate,
            allow_degraded=options.allow_degraded, cold=options.cache == "cold", warm=options.cache == "warm",
            shared=datasets.repeats_prefixes(options.dataset), broken=outcome.broken,
            halved=bool(self._direct), rows=self._size, gates=options.gates, left_out=self._left_out, planned=planned,
            asked=options.count if isinstance(asked.arrivals(options), Replay) and not options.duration else None,
        )

    # ── what to expect ───────────────────────────────────────────────────────────────────────────────
    def _inspect(self) -> tuple[int | None, tuple[float, ...]]:
        """Read the dataset once, so that its faults are told before anything is sent: its size and times."""
        count = datasets.tokenizer(self._options.tokenizer)
        found = datasets.load(self._options.dataset, 0, count)
        datasets.check(found, self._options.dataset.path or "", self._options.dialect)
        self._left_out: int = getattr(found, "left_out", 0)
        if not isinstance(found, Trace) or found.size is None:
            return found.size, ()
        return found.size, tuple(map(found.at, range(found.size)))

    def _expected(self, job: Job) -> tuple[int | None, float | None]:
        """(arrivals planned, seconds they take) where these are fixed before the run."""
        plan = job.arrivals
        if isinstance(plan, OpenLoop):
            return planned(plan), span(plan)
        if isinstance(plan, Replay):
            times = self._trace[: plan.count or None]
            kept = [at / plan.speed for at in times if at / plan.speed <= (plan.duration or math.inf)]
            return len(kept), kept[-1] if kept else 0.0
        return (plan.count if plan.duration is None else None), plan.duration


def _judged(samples: Iterable[Sample], options: Options, outcome: processes.Outcome) -> Iterator[Sample]:
    """All samples, those that the end of the run cut off as the last: what they are depends on the others."""
    end, cut_off = RunEnd(options.grace), []
    for sample in samples:
        end.see(sample)
        if sample.outcome == INCOMPLETE:
            cut_off.append(sample)
        else:
            yield sample
    stopped = outcome.interrupted or outcome.broken     # which waits for nobody, so nobody is late
    yield from cut_off if stopped else map(end.judged, cut_off)


def _effective(options: Options, job: Job, count: int | None) -> dict[str, Any]:
    """The options for a report; a trace has no more requests than rows."""
    found = options.shown()
    if isinstance(job.arrivals, Replay) and "count" in found and count is not None:
        found["count"] = min(count, found["count"])
    return found


def first_loads(options: Options) -> Iterator[Options]:
    """What will be run, as far as it is known before: every point of a sweep, or where a search begins."""
    if not options.sweep and not options.find_max:
        yield options
        return
    kind, levels = options.sweep or (options.find_max or "", ())
    least = least_level(kind, options.duration).level if options.find_max else 0
    for level in levels or (max(AUTO_LEVELS[0], math.ceil(least)),):
        yield at_level(options, kind, level)


def at_level(options: Options, kind: str, level: float) -> Options:
    """`options` at one level of a sweep. Raises ConfigError for an impossible level."""
    if kind == "rate":
        return msgspec.structs.replace(options, rate=float(level), concurrency=None)
    if not float(level).is_integer():
        raise ConfigError(f"a concurrency is a whole number, not {level:g}", param="--sweep")
    return msgspec.structs.replace(options, concurrency=int(level), rate=None)


def _append(details: Path, plan: Plan, sample: Sample) -> None:
    with details.open("ab") as file:
        row = {"cell": plan.cell, "repeat": plan.repeat, **_row(sample)}
        file.write(msgspec.json.encode(row) + b"\n")


def _row(sample: Sample) -> dict[str, Any]:
    """A sample by field names, its gaps as a list of seconds."""
    names = [name for name in sample.__struct_fields__ if name not in ("gaps", "weights")]
    found = {name: getattr(sample, name) for name in names}
    found["gaps_s"] = [gap / 1e6 for gap in sample.gap_list()]
    found["chunk_tokens"] = list(sample.known_weights())
    found["tokens"], found["tokens_from"] = sample.tokens()
    return found
