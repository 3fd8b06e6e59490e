"""`infera simulate --calibrate`: what was measured comes out of the simulation again.

The "measurements" here are simulations of an engine that is known, so that the engine found can be held against it.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from infera_cli.errors import ConfigError
from infera_cli.loadtest.job import DatasetSpec
from infera_cli.loadtest.options import Options, arrivals
from infera_cli.simulator.engine import Profile
from infera_cli.wiring.calibration import calibrated
from infera_cli.wiring.simulation import Simulator, Wanted, drive, ready
from infera_cli.workload.measures import Tally
from infera_cli.workload.result import Client, Document, Run
from infera_cli.workload.simulated import Outcome
from infera_cli.workload.verdict import Circumstances, judge
from tests.workload.samples import sample

TRUTH = Profile(prefill_rate=6000.0, step_ms=12.0, sequence_ms=0.15)
DATASET = DatasetSpec(input_len=500, output_len=32)
LOADS: dict[str, dict[str, Any]] = {
    "idle": {"concurrency": 1, "count": 20}, "busy": {"rate": 6.0, "count": 100},
    "crowded": {"concurrency": 16, "count": 150}, "bursty": {"rate": 5.0, "burstiness": 0.5, "duration": 20.0},
}


def measured(engine: Profile, dataset: DatasetSpec = DATASET, workers: int = 2, **load: Any) -> Run:
    """What a benchmark of `workers` such engines would have saved."""
    options = Options("http://x", dataset=dataset, seed=7, **load)
    wanted = Wanted(arrivals=arrivals(options), dataset=dataset, seed=7, by_text=True)
    simulator, fleet = Simulator(wanted), ready(wanted, "session", workers, engine)
    drive(fleet, wanted.arrivals, simulator.due())
    log = fleet.log
    columns = zip(log.sent, log.ttft, log.e2el, log.prompt, log.cached, log.output, log.worker, strict=True)
    figures = Tally().update(
        sample(sent, ttft, ((whole - ttft) / (output - 1),) * (output - 1), input=prompt, cached=cached,
               worker=f"w{worker}")
        for sent, ttft, whole, prompt, cached, output, worker in columns
    ).figures()
    return Run("", 0, "2026-01-01T00:00:00", False, {**options.shown(), "model": "m"}, {"url": "http://x"},
               Client("h", 1, 0.1, 0.1, "same host"), figures, None, judge(figures, Circumstances()))


def again(engine: Profile, seed: int, **load: Any) -> Outcome:
    plan = arrivals(Options("", dataset=DATASET, **load))
    wanted = Wanted(arrivals=plan, dataset=DATASET, profile=engine, workers=(2, 2), seed=seed, by_text=True)
    return Simulator(wanted).once("session", 2)


@pytest.mark.parametrize("name", LOADS)
@pytest.mark.parametrize("engine", [TRUTH, Profile()])
def test_the_same_load_comes_out_as_it_was_measured(name: str, engine: Profile) -> None:
    """One load, idle or busy: with the engine read off it, mean and median of all three times are within 10 %;
    and those of other requests at the same rate are what that engine would have shown."""
    run = measured(engine, **LOADS[name])
    found, apart = calibrated(Document((run,)), "r.json", Profile())
    assert apart is not None
    assert apart < 0.05
    same, other, other_true = (again(which, seed, **LOADS[name]) for which, seed in (
        (found, 7), (found, 8), (engine, 8)))
    for kind in ("ttft", "tpot", "e2el"):
        for figure in ("mean", "p50"):
            true = getattr(run.figures.latency[kind], figure)
            assert getattr(same.latency[kind], figure) == pytest.approx(true, rel=0.1), (kind, figure)
            true = getattr(other_true.latency[kind], figure)
            assert getattr(other.latency[kind], figure) == pytest.approx(true, rel=0.1), (kind, figure)


def test_several_loads_give_the_engine_itself() -> None:
    """A sweep tells step, sequence and prompts apart: the engine that was measured is found."""
    engine = Profile(prefill_rate=9000.0, step_ms=10.0, sequence_ms=0.6)
    runs = tuple(measured(engine, concurrency=callers, count=60) for callers in (1, 8, 32))
    found, apart = calibrated(Document(runs), "r.json", Profile(blocks=4096))
    assert apart is not None
    assert apart < 0.05
    assert found.prefill_rate == pytest.approx(9000, rel=0.05)
    assert found.step_ms == pytest.approx(10, rel=0.05)
    assert found.sequence_ms == pytest.approx(0.6, rel=0.15)
    assert found.blocks == 4096
    assert calibrated(Document(runs), "r.json", Profile(blocks=4096)).profile == found


def test_answers_that_end_early_are_as_short_as_they_were() -> None:
    """Asked for 64 tokens, answered with 16 to 48: callers whose answers were all alike would go in step."""
    engine = Profile(prefill_rate=9000.0, step_ms=10.0, sequence_ms=0.6)
    shorter = DatasetSpec(input_len=500, output_len=32, range_ratio=0.5)
    asked = DatasetSpec(input_len=500, output_len=64)
    runs = tuple(
        msgspec.structs.replace(run, options={**run.options, "dataset": msgspec.to_builtins(asked)})
        for run in (measured(engine, shorter, concurrency=callers, count=80) for callers in (1, 8, 32))
    )
    found, apart = calibrated(Document(runs), "r.json", Profile())
    assert apart is not None
    assert apart < 0.15
    assert found.prefill_rate == pytest.approx(9000, rel=0.15)
    assert found.step_ms == pytest.approx(10, rel=0.1)


def test_tokens_are_those_of_the_benchmark() -> None:
    """An engine whose tokenizer makes half as many tokens of a prompt computes half as many a second."""
    run = measured(TRUTH, **LOADS["idle"])
    counts = msgspec.structs.replace(run.figures.counts, input_tokens=(run.figures.counts.input_tokens or 0) // 2)
    fewer = msgspec.structs.replace(run, figures=msgspec.structs.replace(run.figures, counts=counts))
    found, _apart = calibrated(Document((fewer,)), "r.json", Profile())
    assert found.prefill_rate == pytest.approx(3000, rel=0.05)


def test_conversations_and_cached_prompts_calibrate() -> None:
    """Turns that find the ones before in the cache cost what is new in them."""
    talks = DatasetSpec(name="multi-turn", input_len=200, output_len=16, turns=4)
    run = measured(TRUTH, talks, workers=1, rate=1.0, count=25)
    assert run.figures.counts.cached_tokens
    found, apart = calibrated(Document((run,)), "r.json", Profile())
    assert apart is not None
    assert apart < 0.05
    assert found.prefill_rate == pytest.approx(6000, rel=0.1)


def test_a_load_that_cannot_be_made_again_gives_a_guess() -> None:
    """The dataset is not here any more: the engine is read off the figures alone, and that is told."""
    run = measured(TRUTH, **LOADS["idle"])
    gone = {**run.options, "dataset": {"name": "sharegpt", "path": "/nowhere.json"}}
    found, apart = calibrated(Document((msgspec.structs.replace(run, options=gone),)), "r.json", Profile())
    assert apart is None
    assert found.step_ms == pytest.approx(12, rel=0.05)
    assert found.prefill_rate == pytest.approx(6000, rel=0.05)


@pytest.mark.parametrize("figures", [{"tpot": 0.0}, {"ttft": -1.0}, {"e2el": 0.0}, {"tpot": -1.0}])
def test_times_that_no_engine_has_are_refused_with_the_file(figures: dict[str, float]) -> None:
    """A damaged result is told by its name, not by what the logarithm says of it."""
    run = measured(TRUTH, **LOADS["idle"])
    latency = dict(run.figures.latency)
    for kind, value in figures.items():
        latency[kind] = msgspec.structs.replace(latency[kind], mean=value, p50=value)
    damaged = msgspec.structs.replace(run, figures=msgspec.structs.replace(run.figures, latency=latency))
    with pytest.raises(ConfigError, match=r"the times in r\.json cannot be those of an engine"):
        calibrated(Document((damaged,)), "r.json", Profile())
