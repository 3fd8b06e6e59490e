"""From what was typed after `infera bench` to what is run and what is written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from infera_cli.cli import bench_files
from infera_cli.cli.bench import result_name
from infera_cli.cli.console import console
from infera_cli.config import secrets
from infera_cli.errors import ConfigError, UsageError

CACHES, SHAPES, KINDS = ("cold", "warm", "as-is"), ("linear", "exponential"), ("rate", "concurrency")
SAME = (
    "stream", "ignore_eos", "per_chunk_usage", "insecure", "ca", "rate", "burstiness", "concurrency",
    "max_concurrency", "count", "duration", "ramp_start", "ramp_end", "speed", "think", "seed", "cache", "warmups",
    "grace", "feed_back", "tokenizer", "processes", "attainment", "repeat", "cooldown", "max_error_rate",
    "allow_degraded", "profile", "placement", "master", "expect_workers",
)
"""What is called the same there."""

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
FRAMING = frozenset({
    "connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding",
    "upgrade",
})
"""Headers by which both ends know where a request ends, and who else may use its connection."""

MOST_CALLERS = 1_000_000_000
FLAGS = {
    "result": "--result-filename", "details": "--save-detailed", "csv": "--csv", "html": "--html", "plot": "--plot",
}
"""Files by what names them."""


def options_from(asked: dict[str, Any]) -> Any:
    """The benchmark asked for, a `loadtest.options.Options`.

    Raises UsageError for what does not parse, ConfigError for what cannot be.
    """
    from infera_cli.loadtest.options import Options
    from infera_cli.workload import gates, goodput

    one_of("--cache", asked["cache"], CACHES)
    one_of("--over", asked["over"], KINDS)
    if asked["ramp"] is not None:
        one_of("--ramp-up-strategy", asked["ramp"], SHAPES)
    _one_load(asked)
    if asked["max_concurrency"] is not None and asked["max_concurrency"] < asked["processes"]:
        raise ConfigError("--max-concurrency must be at least one for every load process")
    dialect, path = endpoint(asked["endpoint"])
    direct = tuple(asked["direct_url"] or ()) if asked["direct"] or asked["direct_url"] else None
    return Options(
        base_url=asked["base_url"], dialect=dialect, path=path, model=asked["model"] or "",
        headers=headers(asked["header"] or (), asked["api_key_file"]), extra_body=extra_body(asked["extra_body"]),
        dataset=dataset_from(asked), ramp_shape=asked["ramp"], limits=_limits(asked),
        always_session=asked["sessions"], direct=direct, slos=goodput.parse(asked["goodput"] or ()),
        gates=gates.parse(asked["gate"] or ()), sweep=sweep(asked["sweep"]),
        find_max=asked["over"] if asked["find_max"] else None,
        save_text=asked["compat"] == "vllm" and asked["save_detailed"],
        metadata=dict(pair("--metadata", text) for text in asked["metadata"] or ()),
        **{name: asked[name] for name in SAME},
    )


def _one_load(asked: dict[str, Any]) -> None:
    """Refuse a load beside the levels that replace it."""
    if asked["sweep"] and asked["find_max"]:
        raise UsageError("give --sweep or --find-max: one tries the levels given, the other finds its own")
    levels = "--sweep" if asked["sweep"] else "--find-max" if asked["find_max"] else ""
    for name, flag in (("rate", "--request-rate"), ("concurrency", "--concurrency"), ("ramp", "--ramp-up-strategy")):
        if levels and asked[name] is not None:
            raise UsageError(f"{levels} sets the load of every run: leave out {flag}, which none of them would have")


def dataset_from(asked: dict[str, Any]) -> Any:
    """The dataset that was asked for. Raises UsageError."""
    from infera_cli.loadtest.job import DatasetSpec
    from infera_cli.workload.names import resolve

    return DatasetSpec(
        name=resolve(asked["dataset"]), path=asked["dataset_path"], input_len=asked["input_len"],
        output_len=asked["output_len"], range_ratio=asked["range_ratio"],
        prefix_len=asked["prefix_len"], groups=asked["groups"], zipf=asked["zipf"],
        turns=asked["turns"], turns_ratio=asked["turns_ratio"], think=asked["turn_pause"], block=asked["block"],
        multi_turn=asked["multi_turn"],
    )


def _limits(asked: dict[str, Any]) -> Any:
    from infera_cli.loadtest.job import Limits

    return Limits(
        asked["connect_timeout"], asked["first_token_timeout"], asked["idle_timeout"], asked["request_timeout"]
    )


def one_of(flag: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a value that is none of `choices`."""
    if value not in choices:
        raise UsageError(f"{flag} must be one of {', '.join(choices)}, not {value!r}")


def endpoint(name: str) -> tuple[Any, str]:
    """(dialect, path or nothing) from `chat`, `completions`, `messages` or a path that ends in one of them."""
    from infera_cli.workload.requests import PATHS

    for dialect, path in PATHS.items():
        if name in (dialect, path):
            return dialect, ""
    if name.startswith("/"):
        if name.endswith("/chat/completions"):
            return "chat", name
        if name.endswith("/completions"):
            return "completions", name
        if name.endswith("/messages"):
            return "messages", name
    raise UsageError(f"--endpoint must be chat, completions, messages or such a path, not {name!r}")


def pair(flag: str, text: str) -> tuple[str, str]:
    """`K=V` as two strings."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise UsageError(f"{flag} must look like K=V, not {text!r}")
    return name.strip(), value.strip()


def headers(given: Any, key_file: str | None) -> dict[str, str]:
    """Headers of every request; the key comes from a file or $OPENAI_API_KEY, never from the command line."""
    found = dict(pair("--header", text) for text in given)
    for name, value in found.items():
        if not _sendable(value) or not TOKEN.fullmatch(name):
            raise UsageError(f"--header {name!r} is not a header that can be sent: ASCII, and no blank in its name")
        if name.lower() in FRAMING:
            raise UsageError(f"--header {name!r} is not yours to set: it says how a request is framed")
    if len({name.lower() for name in found}) < len(found):
        raise UsageError("--header: a name is there twice, in two spellings")
    key = secrets.one(None, key_file, "API key") or os.environ.get("OPENAI_API_KEY")
    if key and not _sendable(key):
        raise ConfigError("the API key has characters that a header cannot carry")
    if key and not any(name.lower() == "authorization" for name in found):
        found["Authorization"] = f"Bearer {key}"
    return found


def _sendable(text: str) -> bool:
    return text.isascii() and text.isprintable()


def extra_body(text: str | None) -> dict[str, Any]:
    """The JSON object of --extra-body."""
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError as fault:
        raise UsageError(f"--extra-body is not JSON ({fault})") from None
    if not isinstance(found, dict):
        raise UsageError("--extra-body must be a JSON object")
    return found


def sweep(text: str | None) -> tuple[str, tuple[float, ...]] | None:
    """`rate=1,2,4`, `concurrency=1,8` or `concurrency=auto`."""
    if text is None:
        return None
    kind, _, levels = ("concurrency", "", "auto") if text == "auto" else text.partition("=")
    one_of("--sweep", kind, KINDS)
    if levels == "auto":
        return kind, ()
    try:
        found = tuple(float(level) for level in levels.split(","))
    except ValueError:
        raise UsageError(f"--sweep levels are numbers with commas between, not {levels!r}") from None
    if any(not level > 0 for level in found):
        raise ConfigError("--sweep levels must be above 0")
    if kind == "concurrency" and any(level != level // 1 or level > MOST_CALLERS for level in found):
        raise ConfigError(f"--sweep concurrency levels are whole numbers of at most {MOST_CALLERS:,}, not {levels}")
    return kind, found


def shown(asked: dict[str, Any]) -> dict[str, Any]:
    """Which latencies and percentiles the console shows: --percentile-metrics, --metric-percentiles."""
    chosen: dict[str, Any] = {}
    if asked["percentile_metrics"]:
        from infera_cli.report.rows import LATENCIES

        chosen["metrics"] = tuple(name.strip() for name in asked["percentile_metrics"].split(","))
        for name in chosen["metrics"]:
            one_of("--percentile-metrics", name, tuple(LATENCIES))
    if asked["metric_percentiles"]:
        try:
            numbers = [float(number) for number in asked["metric_percentiles"].split(",")]
        except ValueError:
            raise UsageError("--metric-percentiles are numbers with commas between, e.g. 50,90,99") from None
        if any(not 0 <= number <= 100 for number in numbers):
            raise ConfigError("--metric-percentiles are between 0 and 100")
        chosen["statistics"] = ("mean", *(f"p{number:g}" for number in numbers), "max")
    return chosen


class Outputs(NamedTuple):
    """The files to write."""

    result: Path | None
    compat: str | None
    details: Path | None
    csv: Path | None
    html: Path | None
    plot: Path | None
    folder: Path | None = None

    def check(self) -> None:
        """Find out before the load, not after it, that a file cannot be written; make the folder of --result-dir."""
        if self.folder is not None:
            bench_files.make(self.folder)
        bench_files.check({flag: getattr(self, name) for name, flag in FLAGS.items()})

    def write(self, document: Any) -> list[str]:
        """Write `document`, a `workload.result.Document`, to them all; a sentence for each that could not be."""
        from infera_cli.report import files
        from infera_cli.workload.result import encode

        if not document.runs:
            return []
        results = self._vllm(document) if self.compat == "vllm" else {self.result: partial(encode, document)}
        lost = bench_files.each({
            **results, self.csv: lambda: files.table(document).encode(),
            self.html: lambda: self._page().report(document).encode(),
            self.plot: lambda: bytes(self._page().picture(document)),
        })
        if self.compat == "vllm" and list(results) != [self.result]:
            console.say(f"wrote {', '.join(path.name for path in results if path is not None and path.exists())}")
        return lost

    @staticmethod
    def _page() -> Any:
        """What draws, and needs matplotlib."""
        from infera_cli.report import page

        return page

    def _vllm(self, document: Any) -> dict[Path | None, Callable[[], bytes]]:
        """A file a run, as `vllm bench` writes them; those of a sweep are named."""
        from infera_cli.report import files

        if self.result is None:
            return {}
        return {
            files.vllm_name(self.result, run, document): partial(files.vllm, run, self.details)
            for run in document.runs
        }


def outputs_from(asked: dict[str, Any], now: datetime) -> Outputs:
    """The files that were asked for; a folder or a name means --save-result."""
    shown(asked)
    if asked["compat"] is not None:
        one_of("--compat", asked["compat"], ("vllm",))
    save = any(asked[name] for name in ("save_result", "save_detailed", "result_dir", "result_filename", "compat"))
    result = result_name(now, asked["result_filename"], asked["result_dir"]) if save else None
    details = result.with_suffix(".requests.jsonl") if result and asked["save_detailed"] else None
    paths = (_path(asked[name]) for name in ("csv", "html", "plot", "result_dir"))
    return Outputs(result, asked["compat"], details, *paths)


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
