"""The examples of the guides on benchmarks and capacity, run as a reader would run them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LONGEST = 170.0    # seconds; a few on a machine that does nothing else

pytestmark = pytest.mark.timeout(180)


def run(example: str, folder: Path, **environment: str) -> str:
    """What an example prints; `infera` is the one of this environment. Nothing that it starts outlives it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        ["sh", str(EXAMPLES / example), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PATH": path, "NO_COLOR": "1", **environment}, start_new_session=True,
    ) as started:
        try:
            said, _ = started.communicate(timeout=LONGEST)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGTERM)
    assert started.returncode == 0, said
    return said


def test_the_sweep_ends_in_a_page(tmp_path: Path) -> None:
    """sweep.sh measures three loads and writes one page with the curve; a log of an earlier run does not mislead it."""
    (tmp_path / "serve.log").write_text("infera listening on http://127.0.0.1:1\n")
    said = run("sweep.sh", tmp_path, REQUESTS="12")
    assert "can't read" not in said
    cells = [one["cell"] for one in json.loads((tmp_path / "sweep.json").read_bytes())["runs"]]
    assert cells == ["concurrency=1", "concurrency=4", "concurrency=16"]
    assert "throughput against latency" in (tmp_path / "sweep.html").read_text()
    assert said.endswith("sweep.html\n")


def test_the_policies_are_simulated_and_measured(tmp_path: Path) -> None:
    """policies.sh simulates four policies, measures two, and both ways `session` finds more in the caches."""
    said = run("policies.sh", tmp_path, COUNT="6")
    hits = {name: float(share) for name, share in re.findall(r"^ ?([a-z-]+) +\d.*? ([0-9.]+)% ", said, re.MULTILINE)}
    assert set(hits) >= {"session", "prefix-aware", "least-loaded", "round-robin"}
    assert hits["session"] > hits["round-robin"]
    assert (tmp_path / "policies.svg").exists()
    measured = {}
    for name in ("session", "round-robin"):
        counts = json.loads((tmp_path / f"{name}.json").read_bytes())["runs"][0]["figures"]["counts"]
        measured[name] = counts["cached_tokens"] / counts["input_tokens"]
    assert measured["session"] > measured["round-robin"]
    assert "can't read" not in said
    assert "B = " in said
