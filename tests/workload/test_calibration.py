"""An engine's speed, read off a benchmark."""

from __future__ import annotations

import msgspec
import pytest

from infera_cli.errors import ConfigError
from infera_cli.workload.calibration import calibrate
from infera_cli.workload.measures import Tally
from infera_cli.workload.result import Client, Document, Run
from infera_cli.workload.verdict import Circumstances, judge
from tests.workload.samples import sample


def run(callers: int, step: float, sequence: float, rate: float, prompt: int = 1000, output: int = 101) -> Run:
    """A run of `callers` at a worker whose steps and prompts take just that."""
    gap = step + callers * sequence
    first = 1.5 * step + prompt / rate
    rows = [sample(0.0, first, (gap,) * (output - 1), input=prompt, worker="w") for _ in range(callers)]
    figures = Tally().update(rows).figures()
    return Run("", 0, "2026-01-01T00:00:00", False, {}, {"url": "http://x"}, Client("h", 1, 0.1, 0.1, "same host"),
               figures, None, judge(figures, Circumstances()))


def test_two_loads_give_step_and_sequence() -> None:
    """Time per token at two concurrencies: the line through them, and the prompt's rate from the lighter one."""
    found = calibrate(Document((run(2, 0.010, 0.001, 5000), run(20, 0.010, 0.001, 5000))), "r.json")
    assert found.loads == 2
    assert found.step_ms == pytest.approx(10.0, rel=0.02)
    assert found.sequence_ms == pytest.approx(1.0, rel=0.02)
    assert found.prefill_rate == pytest.approx(5000, rel=0.02)


def test_one_load_leaves_the_ratio_of_the_default_engine() -> None:
    """With a single load, step and sequence keep their usual ratio and give its time per token."""
    found = calibrate(Document((run(4, 0.010, 0.0, 5000),)), "r.json")
    assert found.loads == 1
    assert found.step_ms + 4 * found.sequence_ms == pytest.approx(10.0, rel=0.02)
    assert found.sequence_ms / found.step_ms == pytest.approx(0.1 / 8)


def test_answers_without_times_between_tokens_cannot_calibrate() -> None:
    """A result with no time per token is refused in words."""
    bare = msgspec.structs.replace(run(2, 0.01, 0.0, 5000), figures=Tally().figures())
    with pytest.raises(ConfigError, match="no streamed answer"):
        calibrate(Document((bare,)), "r.json")
