"""`infera simulate --calibrate`: an engine with which the loads of a benchmark come out as they were measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count, islice
from math import inf
from statistics import fmean, pstdev
from typing import Any, NamedTuple

import msgspec

from infera_cli.errors import ConfigError, InferaError
from infera_cli.loadtest.job import DatasetSpec
from infera_cli.loadtest.options import Options, arrivals
from infera_cli.routing.catalogue import policy
from infera_cli.simulator.engine import Profile
from infera_cli.wiring.simulation import Simulator, Wanted, drive, outcome, ready, uncollected
from infera_cli.workload.arrivals import ClosedLoop
from infera_cli.workload.calibration import Speed, Times, calibrate, computed, refine, times, usable
from infera_cli.workload.distribution import Distribution
from infera_cli.workload.lengths import Part, Talk
from infera_cli.workload.names import TEXTS, resolve
from infera_cli.workload.result import Run

MOST = 3000         # requests of one round of simulations, over all loads
MOST_TOKENS = 1_000_000     # of their prompts, all together, that are written out, which takes time
ENOUGH = 0.02       # answers whose lengths are this near to those asked for, mean and spread, are as long as asked
GOLDEN = 0.618034   # the golden ratio: its multiples lie evenly between whole numbers, in no order
ARRIVALS = (
    "burstiness", "concurrency", "count", "duration", "ramp_shape", "ramp_start", "ramp_end", "speed", "think",
)


class Calibrated(NamedTuple):
    """`apart` is the share by which the worst simulated figure differs from the measured one; None: not simulated."""

    profile: Profile
    apart: float | None


def calibrated(document: Any, origin: str, profile: Profile) -> Calibrated:
    """`profile` at the speed of the engines that `document` measured. Raises ConfigError for one that tells nothing."""
    try:
        guess = calibrate(document, origin)
    except ArithmeticError:
        raise _impossible(origin) from None
    runs = usable(document, origin)
    runs = [run for run in runs if not run.partial] or runs
    try:
        most, tokens = MOST // len(runs) or 1, MOST_TOKENS // len(runs)
        loads = [_Load(run, profile, most, tokens) for run in runs]
        found, apart = refine(
            guess, [times(run.figures.latency) for run in runs],
            lambda speed: [load.simulated(_at(profile, speed)) for load in loads],
        )
    except (InferaError, msgspec.ValidationError, _Unlike):
        found, apart = guess, None
    except (ValueError, ArithmeticError):       # logarithms of what is not above 0
        raise _impossible(origin) from None
    try:
        return Calibrated(_at(profile, found), apart)
    except ValueError:
        raise _impossible(origin) from None


def _impossible(origin: str) -> ConfigError:
    return ConfigError(f"the times in {origin} cannot be those of an engine: measure again")


def _at(profile: Profile, speed: Speed) -> Profile:
    return replace(
        profile, prefill_rate=speed.prefill_rate, step_ms=speed.step_ms, sequence_ms=speed.sequence_ms
    )


class _Unlike(Exception):
    """A load that a simulation cannot repeat."""


class _Load:
    """One measured run, to be simulated as often as it takes."""

    def __init__(self, run: Run, profile: Profile, most: int, most_tokens: int) -> None:
        """Raises ConfigError, ValidationError, _Unlike where the load cannot be made again."""
        figures, options = run.figures, run.options
        if "queue" in figures.latency and figures.latency["queue"].p50 > 0:
            raise _Unlike                   # the client held requests back
        plan = _arrivals(options)
        if isinstance(plan, ClosedLoop):
            plan = msgspec.structs.replace(plan, count=plan.count or figures.counts.arrived)
        self._plan = plan
        self._workers = max(1, len(figures.workers))
        self._policy = _policy(run)
        dataset = msgspec.convert(options.get("dataset", {}), DatasetSpec)
        needed = resolve(dataset.name) in TEXTS
        written = needed or (figures.counts.input_tokens or 0) <= most_tokens
        self._wanted = Wanted(
            arrivals=plan, dataset=dataset, profile=profile, seed=int(options.get("seed", 1)), by_text=written,
        )
        maker = Simulator(self._wanted)
        arrived = figures.counts.arrived * (1 if run.direct is None else 2)
        self._talks = list(_first(islice(maker.due(), max(1, arrived)), most, most_tokens if written else inf))
        self._answer(figures.sizes["output_tokens"])
        made = self._run(profile).log
        if not len(made):
            raise _Unlike
        self._dearer = computed(figures) / max(1.0, (sum(made.prompt) - sum(made.cached)) / len(made))

    def simulated(self, profile: Profile) -> Times:
        """The figures of this load on such engines; those of the benchmark may count a prompt's tokens otherwise."""
        rate = profile.prefill_rate / self._dearer
        fleet = self._run(replace(profile, prefill_rate=rate))
        return times(outcome(fleet, self._policy, self._wanted).latency)

    def _run(self, profile: Profile) -> Any:
        fleet = ready(self._wanted, self._policy, self._workers, profile)
        with uncollected():
            drive(fleet, self._plan, self._talks)
        return fleet

    def _answer(self, lengths: Distribution) -> None:
        """Answers as long as they really were, which may be shorter than asked, and of many lengths."""
        asked = [part.output for talk in self._talks for part in talk.turns]
        near = ENOUGH * lengths.mean
        if abs(fmean(asked) - lengths.mean) < near and abs(pstdev(asked) - lengths.std) < near:
            return
        evenly = (max(1, round(lengths.quantile(number * GOLDEN % 1))) for number in count(1))

        def answered(part: Part) -> Part:
            return msgspec.structs.replace(part, output=next(evenly))

        self._talks = [Talk(tuple(map(answered, talk.turns)), talk.session, talk.at) for talk in self._talks]


def _first(talks: Iterable[Talk], requests: int, tokens: float) -> Iterator[Talk]:
    """Conversations until they hold so many requests, or so many tokens of prompts."""
    for talk in talks:
        if requests <= 0 or tokens <= 0:
            return
        yield talk
        requests -= len(talk.turns)
        tokens -= sum(part.prompt for part in talk.turns)


def _arrivals(options: dict[str, Any]) -> Any:
    known = {name: options[name] for name in ARRIVALS if name in options}
    for name in ("rate", "burstiness"):
        if name in options:
            known[name] = inf if options[name] == "inf" else float(options[name])
    return arrivals(Options("", dataset=msgspec.convert(options.get("dataset", {}), DatasetSpec), **known))


def _policy(run: Run) -> str:
    """The policy of the router that was measured, where it is one of ours."""
    name = str((run.target.get("router") or {}).get("policy", "session"))
    try:
        policy(name)
    except ConfigError:
        return "session"
    return name
