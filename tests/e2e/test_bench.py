"""`infera bench` against real vLLM servers: its totals are theirs, and its verdict is the right one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Fleet
from tests.e2e.processes import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

COUNTERS = ("vllm:request_success_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total")


def totals(fleet: Fleet) -> dict[str, float]:
    """vLLM's own counters, over both engines."""
    return {name: sum(engine.counter(name) for engine in fleet.engines.values()) for name in COUNTERS}


def bench(fleet: Fleet, result: Path, *flags: str) -> subprocess.Popen[str]:
    """A benchmark of the router, under way."""
    command = [
        str(Path(sys.executable).with_name("infera")), "bench", "--base-url", fleet.router.url, "--isl", "24",
        "--osl", "12", "--ignore-eos", "--result-filename", str(result), *flags,
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def outcome(running: subprocess.Popen[str], result: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and the run as saved."""
    said, _ = running.communicate(timeout=180)
    assert result.exists(), said
    run: dict[str, Any] = json.loads(result.read_bytes())["runs"][0]
    return running.returncode, run


def trustworthy(run: dict[str, Any]) -> bool:
    """The gates of the verdict, worked out again from the saved figures (rulings 29)."""
    figures, cpu = run["figures"], run["client"]["cpu_max"]
    lag, ttft = figures["latency"]["lag"]["p99"], figures["latency"]["ttft"]["p50"]
    rates = figures["rates"]
    asked = rates["offered_requests"]
    return lag <= max(0.010, 0.05 * ttft) and cpu <= 0.9 and (not asked or rates["sent_requests"] >= 0.98 * asked)


@pytest.mark.parametrize("endpoint", ["chat", "completions"])
def test_totals_are_vllms_own(fleet: Fleet, tmp_path: Path, endpoint: str) -> None:
    """Requests, prompt tokens and generated tokens of a run equal what vLLM's counters rose by."""
    before = totals(fleet)
    result = tmp_path / "r.json"
    code, run = outcome(bench(fleet, result, "-n", "24", "-c", "2", "--endpoint", endpoint), result)
    counts = run["figures"]["counts"]
    rose = {name: value - before[name] for name, value in totals(fleet).items()}
    assert rose == {
        "vllm:request_success_total": counts["ok"], "vllm:prompt_tokens_total": counts["input_tokens"],
        "vllm:generation_tokens_total": counts["output_tokens"],
    }  # fmt: skip
    assert (counts["ok"], counts["failed"], counts["output_tokens"]) == (24, 0, 24 * 12)
    assert sum(worker["requests"] for worker in run["figures"]["workers"]) == 24
    assert run["verdict"]["status"] == ("VALID" if trustworthy(run) else "INVALID")
    assert code == (0 if trustworthy(run) else 4)


def test_a_load_generator_that_was_held_up_is_judged_invalid(fleet: Fleet, tmp_path: Path) -> None:
    """The load process stands still for two seconds: requests are sent late, the run is INVALID, exit 4."""
    result = tmp_path / "r.json"
    before = totals(fleet)["vllm:request_success_total"]
    running = bench(fleet, result, "--rate", "4", "-d", "8", "--burstiness", "inf")

    def under_way() -> bool:
        return totals(fleet)["vllm:request_success_total"] > before

    eventually(under_way, within=60, otherwise=lambda: "no request was served")
    pattern = "infera_cli.loadtest.child"
    found = subprocess.run(["pgrep", "-P", str(running.pid), "-f", pattern], capture_output=True, text=True, check=True)
    child = int(found.stdout.split()[0])
    os.kill(child, signal.SIGSTOP)
    time.sleep(2)
    os.kill(child, signal.SIGCONT)
    code, run = outcome(running, result)
    assert run["verdict"]["status"] == "INVALID"
    assert code == 4
    assert run["figures"]["latency"]["lag"]["max"] > 1
