"""How the load generator is measured."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.generator import TOKENS, measured, read, target


def test_a_run_against_the_target_of_streams_counts_its_events(tmp_path: Path) -> None:
    """Every stream is read to its end; events a second follow from streams and tokens."""
    with target(None) as url:
        run = measured(url, 20, 1.0, tmp_path, cores=sorted(os.sched_getaffinity(0)))
    assert run.events > 5 * TOKENS
    assert run.lag > 0
    assert run.verdict in ("VALID", "INVALID")


@pytest.mark.parametrize(("status", "verdict"), [("VALID", "VALID"), ("INVALID", "INVALID"), ("DEGRADED", "INVALID")])
def test_a_run_that_was_only_let_pass_is_invalid(status: str, verdict: str) -> None:
    """`--allow-degraded` keeps the exit code, not the claim."""
    run = read({
        "figures": {"rates": {"between_completions": 10.0}, "counts": {"output_tokens": 6400, "ok": 100},
                    "latency": {"lag": {"p99": 0.004}}},
        "client": {"cpu_max": 0.5}, "verdict": {"status": status, "reasons": ["slow"]},
    })
    assert (run.events, run.lag, run.verdict, run.reasons) == (640.0, 4.0, verdict, "slow")
