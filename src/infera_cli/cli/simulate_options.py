"""The options of `infera simulate`: those of `infera bench` where they mean the same, and its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from infera_cli.cli import bench_options
from infera_cli.config.policies import policy_names

FLEET, ENGINE = "Fleet", "Engine"
SHARED = (
    "rate", "burstiness", "concurrency", "duration", "ramp", "ramp_start", "ramp_end", "speed", "think",
    "dataset", "dataset_path", "input_len", "output_len", "range_ratio", "prefix_len", "groups", "zipf", "turns",
    "turns_ratio", "turn_pause", "multi_turn", "block", "goodput", "output", "html", "plot",
)


def _option(panel: str, kind: Any, default: Any, *flags: str, **more: Any) -> tuple[Any, Any, Any]:
    return kind, default, typer.Option(*flags, rich_help_panel=panel, **more)


def _own() -> dict[str, tuple[Any, Any, Any]]:
    return {
        "policy": _option(FLEET, list[str] | None, None, "--policy", "--router-policy", metavar="NAMES",
                          help="Policies, commas between, or `all`; default: session.",
                          autocompletion=lambda: [*policy_names(), "all"]),
        "workers": _option(FLEET, str, "4", "--workers", metavar="N|N..M",
                           help="Replicas; with a range: the fewest that keep --goodput, else 1, 2, 4 … times N."),
        "slack": _option(FLEET, float, 8.0, "--affinity-slack", metavar="N", help="As of `infera serve`."),
        "ttl": _option(FLEET, float, 600.0, "--session-ttl", metavar="S", help="As of `infera serve`."),
        "gpus": _option(FLEET, int, 1, "--gpus-per-worker", metavar="N", help="For GPU seconds."),
        "calibrate": _option(ENGINE, str | None, None, "--calibrate", metavar="FILE",
                             help="Engines as fast as in this result of `infera bench`."),
        "prefill_rate": _option(ENGINE, float | None, None, "--prefill-rate", metavar="R",
                                help="Prompt tokens per second; default 20000."),
        "itl_ms": _option(ENGINE, float | None, None, "--itl-ms", metavar="MS",
                          help="Between tokens of a lone stream; default 8."),
        "sequence_ms": _option(ENGINE, float | None, None, "--sequence-ms", metavar="MS",
                               help="More for every further stream; default 0.1."),
        "max_num_seqs": _option(ENGINE, int, 128, "--max-num-seqs", metavar="N", help="Sequences at once."),
        "max_batched": _option(ENGINE, int, 8192, "--max-num-batched-tokens", metavar="N", help="Tokens of a step."),
        "block_size": _option(ENGINE, int, 16, "--block-size", metavar="N", help="Tokens of a KV block."),
        "blocks": _option(ENGINE, int, 8192, "--blocks", "--num-gpu-blocks-override", metavar="N",
                          help="KV blocks."),
        "by_text": _option(bench_options.DATA, bool, False, "--by-text",
                           help="Make the prompts of `infera bench`, as simulated engines count tokens; slower."),
        "seed": _option(bench_options.DATA, int, 1, "--seed", metavar="N", help="The same seed, the same figures."),
        "count": _option(bench_options.LOAD, int | None, None, "--num-prompts", "-n", metavar="N",
                         help="Requests, or conversations; default 1000 without -d, of a trace all."),
        "attainment": _option(bench_options.JUDGE, float, 0.95, "--attainment", metavar="SHARE",
                              help="With a range of --workers: share of requests that must keep the limits."),
        "result": _option(bench_options.OUTPUT, str | None, None, "--result-filename", metavar="FILE",
                          help="Write the result as JSON."),
    }


def every() -> dict[str, tuple[Any, Any, Any]]:
    """All of them by name: (type, default, option)."""
    shared = bench_options.every()
    return {**_own(), **{name: shared[name] for name in SHARED}}


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give `command(ctx, asked)` all of them."""
    return bench_options.with_table(command, every())
