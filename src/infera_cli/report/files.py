"""Results as files: our JSON, the keys of `vllm bench serve`, CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from infera_cli.report import rows, words
from infera_cli.workload.distribution import Distribution
from infera_cli.workload.figures import Figures
from infera_cli.workload.result import Document, Run

VLLM_METRICS = {"ttft": "ttft", "tpot": "tpot", "itl": "icl", "e2el": "e2el"}
"""vLLM's ITL is the gap between chunks, which is our ICL (bench-and-cli §A1)."""

VLLM_LISTS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors")
VLLM_LATER = re.compile(rf"partial|{'|'.join(VLLM_LISTS)}|(mean|median|std|p[0-9.]+)_({'|'.join(VLLM_METRICS)})_ms")
"""Names of what was measured that not every run has: `--metadata` does not get these either."""


def vllm_name(result: Path, run: Run, document: Document) -> Path:
    """The file of one run: `result` itself for a single one, else with cell and repetition in its name."""
    if len(document.runs) == 1 and not run.cell:
        return result
    repeated = any(other.repeat for other in document.runs if other.cell == run.cell)
    parts = [result.stem, run.cell.replace("=", "-"), f"run-{run.repeat + 1}" if repeated else ""]
    return result.with_name("-".join(part for part in parts if part) + result.suffix)


def vllm(run: Run, details: Path | None = None) -> bytes:
    """A run under the keys of `vllm bench serve --save-result`; with the file of `--save-detailed` also its lists,
    one member a request, in the order of their sending."""
    found = _vllm(run)
    if details is not None:
        with details.open("rb") as lines:
            every = map(msgspec.json.decode, lines)
            mine = (row for row in every if (row["cell"], row["repeat"]) == (run.cell, run.repeat))
            found |= _vllm_lists(sorted(mine, key=lambda row: row["sent"]))
    return msgspec.json.format(msgspec.json.encode(found), indent=1)


def _vllm_lists(requests: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    def ttft(row: dict[str, Any]) -> float:
        return 0.0 if row["first"] is None else float(row["first"] - row["sent"])

    return {
        "input_lens": [row["input"] or 0 for row in requests],
        "output_lens": [row["tokens"] if row["outcome"] == "ok" else 0 for row in requests],
        "ttfts": [ttft(row) for row in requests], "itls": [row["gaps_s"] for row in requests],
        "start_times": [row["sent"] for row in requests],
        "generated_texts": [row["text"] or "" for row in requests],
        "errors": ["" if row["outcome"] == "ok" else row["error"] or row["outcome"] for row in requests],
    }


def _vllm(run: Run) -> dict[str, Any]:
    figures, options = run.figures, run.options
    counts, rates = figures.counts, figures.rates
    found: dict[str, Any] = {
        "date": datetime.fromisoformat(run.started).strftime("%Y%m%d-%H%M%S"),
        "backend": "openai-chat" if options.get("dialect") == "chat" else "openai",
        "endpoint_type": options.get("dialect"), "label": run.cell or None, "model_id": options.get("model"),
        "tokenizer_id": options.get("tokenizer"), "num_prompts": counts.sent,
        "request_rate": options.get("rate", "inf"), "burstiness": options.get("burstiness", 1.0),
        "max_concurrency": options.get("concurrency", options.get("max_concurrency")),
        "duration": rates.window_s, "completed": counts.ok, "failed": counts.failed,
        "total_input_tokens": counts.input_tokens, "total_output_tokens": counts.output_tokens,
        "request_throughput": rates.overall_requests, "request_goodput": rates.goodput,
        "output_throughput": rates.overall_output_tokens,
        "total_token_throughput": rates.overall_tokens,
        "max_output_tokens_per_s": rates.peak_output_tokens,
        "max_concurrent_requests": figures.concurrency.peak,
    }
    given = options.get("metadata", {})
    found |= {name: value for name, value in given.items() if name not in found and not VLLM_LATER.fullmatch(name)}
    if run.partial:
        found["partial"] = True
    for name, ours in VLLM_METRICS.items():
        if ours in figures.latency:
            found |= _vllm_metric(name, figures.latency[ours].scaled(1e3))
    return found


def _vllm_metric(name: str, of: Distribution) -> dict[str, float]:
    return {
        f"mean_{name}_ms": of.mean, f"median_{name}_ms": of.p50, f"std_{name}_ms": of.std,
        f"p50_{name}_ms": of.p50, f"p90_{name}_ms": of.p90, f"p95_{name}_ms": of.p95,
        f"p99_{name}_ms": of.p99,
    }


def table(document: Document) -> str:
    """One line per run, as CSV; durations in milliseconds. `partial` is about the run, `interrupted` the whole."""
    cut = _yes(bool(words.interrupted(document)))
    lines = [_line(run) | {"interrupted": cut} for run in document.runs]
    columns = list(dict.fromkeys(name for line in lines for name in line))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def _line(run: Run) -> dict[str, Any]:
    figures = run.figures
    line: dict[str, Any] = {
        "cell": run.cell, "repeat": run.repeat, "started": run.started, "verdict": run.verdict.status,
        "partial": _yes(run.partial),
    }
    line |= _counts(figures)
    line |= msgspec.to_builtins(figures.rates)
    line |= {"concurrency_mean": figures.concurrency.mean, "concurrency_peak": figures.concurrency.peak}
    line |= _latencies(figures)
    if figures.attainment is not None:
        line |= {"good": figures.attainment.good, "judged": figures.attainment.judged}
    if run.direct is not None:
        past = {**_counts(run.direct), **_latencies(run.direct)}
        line |= {f"direct_{name}": value for name, value in past.items()}
    return line


def _yes(whether: bool) -> str:
    return "yes" if whether else "no"


def _counts(figures: Figures) -> dict[str, Any]:
    counts = msgspec.to_builtins(figures.counts)
    single = {name: value for name, value in counts.items() if not isinstance(value, dict)}
    single["odd_usage"] = sum(figures.counts.odd_usage.values())
    return single | {f"failed_{kind}": many for kind, many in figures.counts.failures.items()}


def _latencies(figures: Figures) -> dict[str, float]:
    return {
        f"{row.key}_{name}_ms": round(getattr(row.figures, name), 4)
        for row in rows.latencies(figures) for name in rows.STATISTICS
    }
