"""`infera simulate` put together: a workload of `workload`, fleets of `simulator`, figures for `report`."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, takewhile
from math import inf

from infera_cli import __version__
from infera_cli.errors import ConfigError
from infera_cli.loadtest import datasets
from infera_cli.loadtest.job import DatasetSpec
from infera_cli.routing.catalogue import policy
from infera_cli.simulator.engine import Profile
from infera_cli.simulator.fleet import Fleet, Log
from infera_cli.simulator.router import Routing, router_for
from infera_cli.wiring import simulation_text
from infera_cli.workload import lengths
from infera_cli.workload.arrivals import Arrivals, ClosedLoop, Replay, check, offsets, planned
from infera_cli.workload.distribution import Distribution, figures
from infera_cli.workload.goodput import Slo
from infera_cli.workload.items import Dataset
from infera_cli.workload.lengths import Talk
from infera_cli.workload.names import FROM_FILE, resolve
from infera_cli.workload.simulated import Outcome, Simulation, attainment, levels
from infera_cli.workload.synthetic import Lengths
from infera_cli.workload.traces import Trace

LOOK = 256      # conversations between two looks at whether the limits can be kept

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to simulate. `workers` are (least, most); `gpus` each worker has. `by_text` makes the prompts that bench
    sends and counts their tokens as simulated engines do."""

    arrivals: Arrivals
    dataset: DatasetSpec = field(default_factory=DatasetSpec)
    policies: tuple[str, ...] = ("session",)
    workers: tuple[int, int] = (4, 4)
    profile: Profile = field(default_factory=Profile)
    seed: int = 1
    slack: float = 8.0
    ttl: float = 600.0
    slos: tuple[Slo, ...] = ()
    attainment: float = 0.95
    gpus: int = 1
    by_text: bool = False


class Simulator:
    """Reads the dataset once, then simulates as often as asked."""

    def __init__(self, wanted: Wanted, tell: Tell = lambda _said: None) -> None:
        """`tell` hears how far it is. Raises ConfigError, UsageError for what cannot be simulated."""
        self._wanted = wanted
        self._tell = tell
        check(wanted.arrivals)
        if isinstance(wanted.arrivals, ClosedLoop) and wanted.arrivals.count is None:
            raise ConfigError("for callers say how many requests there are (-n): simulated time has no end of its own")
        for name in wanted.policies:
            policy(name)
        self._name = resolve(wanted.dataset.name)
        self._dataset: Dataset = datasets.load(wanted.dataset, wanted.seed)
        self.runs: list[Outcome] = []

    # ── what to run ──────────────────────────────────────────────────────────────────────────────────
    def run(self, options: dict[str, object]) -> Simulation:
        """All policies, on as many workers as it takes."""
        low, high = self._wanted.workers
        replicas: dict[str, int | None] = {}
        for name in self._wanted.policies:
            if low == high:
                self.once(name, low)
            elif self._wanted.slos:
                replicas[name] = self._fewest(name, low, high)
            else:
                for workers in levels(low, high):
                    self.once(name, workers)
        place = {name: at for at, name in enumerate(self._wanted.policies)}
        ordered = sorted(self.runs, key=lambda one: (place[one.policy], one.workers))
        return Simulation(
            tuple(ordered), options, replicas, __version__, getattr(self._dataset, "left_out", 0), self._again()
        )

    def _again(self) -> int | None:
        """How many rows the dataset has, where the load needs more."""
        plan, size = self._wanted.arrivals, self._dataset.size
        if isinstance(plan, Replay) or size is None:
            return None
        wanted = plan.count if isinstance(plan, ClosedLoop) else planned(plan)
        return size if wanted is not None and wanted > size else None

    def cut_short(self) -> str:
        """What of a replay is not there, in words; nothing where all of it is."""
        plan, size = self._wanted.arrivals, self._dataset.size
        if not isinstance(plan, Replay) or plan.duration or plan.count is None or size is None or plan.count <= size:
            return ""
        return f"the trace ends after {size} of the {plan.count} requests asked for"

    def _fewest(self, name: str, low: int, high: int) -> int | None:
        """The fewest workers that keep the limits. Every number from the least is tried, for with caches more workers
        may keep less of them; most are given up as soon as they cannot, which is early where they are too few."""
        share, shown = self._wanted.attainment, levels(low, high)
        seen = {workers: self.once(name, workers).meets(share) for workers in shown}
        for workers in range(low, high + 1):
            if workers not in seen:
                found = self._simulated(name, workers, hopeful=True)
                seen[workers] = found is not None and found.meets(share)
                if found is not None and seen[workers]:
                    self._note(found)
                else:
                    self._tell(f"{name}, {workers} workers: not enough")
            if seen[workers]:
                if workers > low and workers - 1 not in shown:
                    self.once(name, workers - 1)        # a table shows both sides of the answer
                return workers
        return None

    def once(self, name: str, workers: int) -> Outcome:
        """One policy on so many workers."""
        found = self._simulated(name, workers)
        assert found is not None  # noqa: S101 - it was not to be given up
        self._note(found)
        return found

    def _note(self, found: Outcome) -> None:
        self.runs.append(found)
        self._tell(f"{found.policy}, {found.workers} workers: {found.requests} requests")

    def _simulated(self, name: str, workers: int, *, hopeful: bool = False) -> Outcome | None:
        """One policy on so many workers; with `hopeful` None as soon as it cannot keep the limits any more."""
        wanted = self._wanted
        fleet = ready(wanted, name, workers, wanted.profile)
        with uncollected(), suppress(_Hopeless):
            drive(fleet, wanted.arrivals, self._while_hope(fleet.log) if hopeful else self.due())
            return outcome(fleet, name, wanted)
        return None

    def _while_hope(self, log: Log) -> Iterator[Talk]:
        """The conversations. Raises _Hopeless when more requests missed the limits than may."""
        wanted, seen, missed = self._wanted, 0, 0
        for number, talk in enumerate(self.due()):
            if not number % LOOK:
                times = list(zip(log.ttft[seen:], log.e2el[seen:], log.output[seen:], strict=True))
                kept = attainment(wanted.slos, times, 0)
                seen, missed = len(log), missed + (kept.judged - kept.good if kept else 0)
                if self._requests - missed - log.too_long < wanted.attainment * self._requests:
                    raise _Hopeless
            yield talk

    @cached_property
    def _requests(self) -> int:
        return sum(len(talk.turns) for talk in self.due())

    # ── the workload ─────────────────────────────────────────────────────────────────────────────────
    def due(self) -> Iterator[Talk]:
        """The conversations, at their times where they have any."""
        plan = self._wanted.arrivals
        if isinstance(plan, Replay):
            most = min(plan.count or self._dataset.size or 0, self._dataset.size or 0)
            until = plan.duration or inf
            replayed = (talk.replayed(plan.speed, until) for talk in islice(self._talks(), most))
            yield from takewhile(lambda talk: talk.at <= until, replayed)
        elif isinstance(plan, ClosedLoop):
            yield from (talk.due(0.0) for talk in islice(self._talks(), plan.count))
        else:
            for at, talk in zip(offsets(plan, self._wanted.seed), islice(self._talks(), planned(plan)), strict=True):
                yield talk.due(at)

    def _talks(self) -> Iterator[Talk]:
        """The conversations of the dataset, again from the start after the last."""
        wanted, spec, block = self._wanted, self._wanted.dataset, self._wanted.profile.block_size
        dataset = self._dataset
        if isinstance(dataset, Trace) and not wanted.by_text:
            return lengths.trace(dataset.sessions, page=dataset.page, block=block)
        if self._name in FROM_FILE or wanted.by_text:
            return simulation_text.talks(dataset, block=block)
        prompt = Lengths(spec.input_len, spec.range_ratio)
        output = Lengths(spec.output_len or 128, spec.range_ratio)
        if self._name == "random":
            return lengths.random_lengths(wanted.seed, prompt, output, prefix=spec.prefix_len, block=block)
        if self._name == "prefix":
            return lengths.shared_prefixes(
                wanted.seed, prompt, output, groups=spec.groups, prefix=spec.prefix_len or 256, alpha=spec.zipf,
                block=block,
            )
        return lengths.conversations(
            wanted.seed, prompt, output, turns=Lengths(spec.turns, spec.turns_ratio), system=spec.prefix_len,
            think=spec.think, block=block,
        )


class _Hopeless(Exception):
    """The limits are missed, whatever comes."""


def drive(fleet: Fleet, arrivals: Arrivals, talks: Iterable[Talk]) -> None:
    """Put the load on an idle fleet."""
    if isinstance(arrivals, ClosedLoop):
        fleet.run_callers(talks, arrivals.concurrency, arrivals.think)
    else:
        fleet.run(talks)


def ready(wanted: Wanted, name: str, workers: int, profile: Profile) -> Fleet:
    """A fleet that has nothing to do yet."""
    return Fleet(profile, router_for(Routing(
        policy=policy(name), workers=workers, block=profile.block_size, seed=wanted.seed, slack=wanted.slack,
        ttl=wanted.ttl,
    )))


@contextmanager
def uncollected() -> Iterator[None]:
    """Without looks for garbage in cycles, of which a simulation makes none and would be searched all the time."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def outcome(fleet: Fleet, name: str, wanted: Wanted) -> Outcome:
    """Figures of a fleet that has run."""
    log, workers = fleet.log, len(fleet.engines)
    window = max(fleet.now - min(log.sent, default=0.0), 0.0)
    shares = [0] * workers
    for index in log.worker:
        shares[index] += 1
    times = list(zip(log.ttft, log.e2el, log.output, strict=True)) if wanted.slos else []
    kept = attainment(wanted.slos, times, log.too_long)
    prompt, cached, output = sum(log.prompt), sum(log.cached), sum(log.output)

    def rate(amount: float) -> float:
        return amount / window if window else 0.0

    return Outcome(
        policy=name, workers=workers, requests=len(log), too_long=log.too_long, window_s=window,
        latency=_latency(log), input_tokens=prompt, cached_tokens=cached, output_tokens=output,
        hit_rate=cached / prompt if prompt else 0.0, shares=tuple(shares),
        imbalance=max(shares) * workers / len(log) if len(log) else 0.0,
        busy=rate(sum(fleet.busy) / workers), gpu_seconds=window * workers * wanted.gpus,
        preemptions=sum(engine.counters.preemptions for engine in fleet.engines),
        requests_per_s=rate(len(log)), output_tokens_per_s=rate(output), attainment=kept,
        goodput=rate(kept.good) if kept else None,
    )


def _latency(log: Log) -> dict[str, Distribution]:
    if not len(log):
        return {}
    tpot = [
        (whole - first) / (tokens - 1)
        for first, whole, tokens in zip(log.ttft, log.e2el, log.output, strict=True) if tokens > 1
    ]
    pools = {"ttft": sorted(log.ttft), "tpot": sorted(tpot), "e2el": sorted(log.e2el)}
    return {kind: figures(pool) for kind, pool in pools.items() if pool}
