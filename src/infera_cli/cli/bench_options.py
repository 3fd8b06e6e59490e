"""The options of `infera bench`, in one table: the spellings people know from other tools (bench-and-cli §A14)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import typer

TARGET, LOAD, DATA = "Target", "Load", "Dataset"
JUDGE, MACHINE, OUTPUT = "Judgement", "Load machines", "Output"
SEVERAL = frozenset({"--goodput", "--gate", "--metadata", "--header", "--direct-url"})
"""Options after which several values may follow, as in vLLM."""


def _option(kind: Any, default: Any, *flags: str, panel: str, **more: Any) -> tuple[Any, Any, Any]:
    return kind, default, typer.Option(*flags, rich_help_panel=panel, **more)


def _target() -> dict[str, tuple[Any, Any, Any]]:
    def option(kind: Any, default: Any, *flags: str, **more: Any) -> tuple[Any, Any, Any]:
        return _option(kind, default, *flags, panel=TARGET, **more)

    return {
        "base_url": option(str | None, None, "--base-url", "--url", metavar="URL",
                           help="The address to load, e.g. http://127.0.0.1:8000."),
        "endpoint": option(str, "chat", "--endpoint", metavar="NAME",
                           help="chat, completions, messages, or a path.",
                           autocompletion=lambda: ["chat", "completions", "messages"]),
        "model": option(str | None, None, "--model", "--served-model-name", metavar="NAME",
                        help="Model to ask for; default: the first that is served."),
        "stream": option(bool, True, "--stream/--no-stream", help="Ask for streams."),
        "header": option(list[str] | None, None, "--header", metavar="K=V", help="Header of every request."),
        "api_key_file": option(str | None, None, "--api-key-file", metavar="FILE",
                               help="File with the bearer key; else $OPENAI_API_KEY."),
        "extra_body": option(str | None, None, "--extra-body", metavar="JSON",
                             help="Members to merge into every request body."),
        "ignore_eos": option(bool, False, "--ignore-eos", help="Make answers exactly as long as asked for."),
        "per_chunk_usage": option(bool, False, "--per-chunk-usage",
                                  help="Ask how many tokens each chunk holds (vLLM, SGLang)."),
        "insecure": option(bool, False, "--insecure", help="Do not verify TLS certificates."),
        "ca": option(str | None, None, "--cacert", metavar="FILE", help="Certificates to trust."),
        "ready_check": option(float, 0.0, "--ready-check-timeout-sec", metavar="S",
                              help="Wait so long for the target to come up."),
        "connect_timeout": option(float, 5.0, "--connect-timeout", metavar="S", help="Seconds to connect."),
        "first_token_timeout": option(float, 0.0, "--first-token-timeout", metavar="S",
                                      help="Seconds to the first token; 0: no limit."),
        "idle_timeout": option(float, 0.0, "--idle-timeout", metavar="S",
                               help="Seconds without data; 0: no limit."),
        "request_timeout": option(float, 3600.0, "--request-timeout", metavar="S",
                                  help="Seconds for a whole request; 0: no limit."),
    }


def _load() -> dict[str, tuple[Any, Any, Any]]:
    def option(kind: Any, default: Any, *flags: str, **more: Any) -> tuple[Any, Any, Any]:
        return _option(kind, default, *flags, panel=LOAD, **more)

    return {
        "rate": option(float | None, None, "--request-rate", "--rate", metavar="R",
                       help="Open loop: requests (conversations, for multi-turn) per second; inf: all at once."),
        "burstiness": option(float, 1.0, "--burstiness", metavar="B",
                             help="1 Poisson, below 1 bursty, inf constant."),
        "concurrency": option(int | None, None, "--concurrency", "-c", metavar="N",
                              help="Closed loop: so many callers."),
        "max_concurrency": option(int | None, None, "--max-concurrency", metavar="N",
                                  help="Open loop: at most so many open; waiting is measured, also after -d."),
        "count": option(int | None, None, "--num-prompts", "-n", metavar="N",
                        help="Requests (or conversations); default 200 without -d."),
        "duration": option(float | None, None, "--duration", "-d", metavar="S",
                           help="Seconds in which requests come; those are still answered."),
        "grace": option(float, 30.0, "--grace", metavar="S",
                        help="After -d: seconds for what is open or waits to end, then it is cut off."),
        "warmups": option(int, 0, "--num-warmups", metavar="N", help="Unmeasured requests before."),
        "ramp": option(str | None, None, "--ramp-up-strategy", metavar="SHAPE", help="linear or exponential.",
                       autocompletion=lambda: ["linear", "exponential"]),
        "ramp_start": option(float | None, None, "--ramp-up-start-rps", metavar="R", help="Rate at the start."),
        "ramp_end": option(float | None, None, "--ramp-up-end-rps", metavar="R", help="Rate at the end."),
        "speed": option(float, 1.0, "--speed", metavar="X", help="Replay a trace so many times faster."),
        "think": option(float, 0.0, "--think-time", metavar="S", help="Pause of a caller between requests."),
        "sessions": option(bool, False, "--sessions", help="A session id on every request, too."),
        "profile": option(bool, False, "--profile", help="Have the engines' profilers run while the load does."),
        "direct": option(bool, False, "--direct", help="Send every second request past the router."),
        "direct_url": option(list[str] | None, None, "--direct-url", metavar="URL",
                             help="Worker for --direct; default: those the router lists."),
        "sweep": option(str | None, None, "--sweep", metavar="KIND=LEVELS",
                        help="rate=1,2,4 or concurrency=1,8,64 or concurrency=auto."),
        "find_max": option(bool, False, "--find-max",
                           help="Search the most load that meets --goodput: some ten levels, each run up"
                                " to three times."),
        "over": option(str, "concurrency", "--over", metavar="KIND", help="--find-max: concurrency (callers) or rate.",
                       autocompletion=lambda: ["concurrency", "rate"]),
        "repeat": option(int, 1, "--repeat", metavar="N", help="Run every cell so often."),
        "cooldown": option(float, 0.0, "--cooldown", metavar="S", help="Pause between runs."),
    }


def _dataset() -> dict[str, tuple[Any, Any, Any]]:
    def option(kind: Any, default: Any, *flags: str, **more: Any) -> tuple[Any, Any, Any]:
        return _option(kind, default, *flags, panel=DATA, **more)

    return {
        "dataset": option(str, "random", "--dataset-name", metavar="NAME",
                          help="random, prefix, multi-turn, sharegpt, conversations, openai, mooncake, azure or"
                               " burstgpt.",
                          autocompletion=lambda: ["random", "prefix", "multi-turn", "sharegpt", "conversations",
                                                  "openai", "mooncake", "azure", "burstgpt"]),
        "dataset_path": option(str | None, None, "--dataset-path", metavar="FILE", help="File of the dataset."),
        "input_len": option(int, 1024, "--random-input-len", "--isl", metavar="N", help="Prompt tokens."),
        "output_len": option(int | None, None, "--random-output-len", "--osl", "--sharegpt-output-len",
                             metavar="N", help="Answer tokens; default 128, or as the file says."),
        "range_ratio": option(float, 0.0, "--random-range-ratio", metavar="R",
                              help="Lengths vary by ± this share."),
        "prefix_len": option(int, 0, "--random-prefix-len", "--prefix-len", metavar="N",
                             help="Shared prefix tokens, on top of the prompt."),
        "groups": option(int, 10, "--prefix-groups", metavar="N", help="prefix: groups of prompts."),
        "zipf": option(float, 0.0, "--zipf", metavar="ALPHA", help="prefix: popularity; 0 even."),
        "turns": option(int, 3, "--turns", metavar="N", help="multi-turn: turns of a conversation."),
        "turns_ratio": option(float, 0.0, "--turns-range-ratio", metavar="R", help="They vary by ± this share."),
        "turn_pause": option(float, 0.0, "--turn-pause", metavar="S", help="Pause before a following turn."),
        "multi_turn": option(bool, False, "--multi-turn", help="sharegpt: play all turns."),
        "feed_back": option(bool, True, "--feed-back/--recorded-answers",
                            help="Continue with the answers that came, or the recorded ones."),
        "block": option(int, 512, "--trace-block-size", metavar="N", help="mooncake: tokens of a hash id."),
        "tokenizer": option(str | None, None, "--tokenizer", metavar="PATH",
                            help="tokenizer.json, for exact lengths."),
        "seed": option(int | None, None, "--seed", metavar="N", help="The same seed sends the same prompts."),
        "cache": option(str, "cold", "--cache", "--cache-mode", metavar="POLICY",
                        help="cold: new prompts; warm: sent once before; as-is.",
                        autocompletion=lambda: ["cold", "warm", "as-is"]),
    }


def _rest() -> dict[str, tuple[Any, Any, Any]]:
    def option(panel: str, kind: Any, default: Any, *flags: str, **more: Any) -> tuple[Any, Any, Any]:
        return _option(kind, default, *flags, panel=panel, **more)

    return {
        "goodput": option(JUDGE, list[str] | None, None, "--goodput", metavar="NAME:MS",
                          help="Limits, e.g. ttft:300 tpot:30 e2el:3000."),
        "attainment": option(JUDGE, float, 0.95, "--attainment", metavar="SHARE",
                             help="--find-max: share that must meet them."),
        "gate": option(JUDGE, list[str] | None, None, "--gate", metavar="NAME:LIMIT",
                       help="Exit 1 beyond it, e.g. lag_p99:5 cpu:0.7 rate:0.99 hits:0.5 truncated:0."),
        "max_error_rate": option(JUDGE, float, 0.0, "--max-error-rate", metavar="SHARE",
                                 help="Share of failures that is still exit code 0."),
        "allow_degraded": option(JUDGE, bool, False, "--allow-degraded",
                                 help="Do not fail when the load generator was too slow."),
        "processes": option(MACHINE, int, 1, "--processes", metavar="N", help="Load processes."),
        "master": option(MACHINE, str | None, None, "--master-bind", metavar="HOST:PORT",
                         help="Let other machines join here (infera bench worker), for all runs."),
        "expect_workers": option(MACHINE, int, 1, "--expect-workers", metavar="N",
                                 help="Machines to wait for, up to ten minutes."),
        "placement": option(MACHINE, str, "", "--placement", metavar="TEXT",
                            help="Where the load comes from, for the report."),
        "output": option(OUTPUT, str, "table", "--output", "-o", metavar="FORMAT", help="table or json.",
                         autocompletion=lambda: ["table", "json"]),
        "save_result": option(OUTPUT, bool, False, "--save-result", help="Write the result as JSON."),
        "save_detailed": option(OUTPUT, bool, False, "--save-detailed",
                                help="And a line of JSON for every request."),
        "result_dir": option(OUTPUT, str | None, None, "--result-dir", metavar="DIR",
                             help="Folder for result files; made if there is none."),
        "result_filename": option(OUTPUT, str | None, None, "--result-filename", metavar="FILE",
                                  help="Name of the result file."),
        "compat": option(OUTPUT, str | None, None, "--compat", metavar="TOOL",
                         help="vllm: write the result with its keys.", autocompletion=lambda: ["vllm"]),
        "csv": option(OUTPUT, str | None, None, "--csv", metavar="FILE", help="A line per run."),
        "html": option(OUTPUT, str | None, None, "--html", metavar="FILE", help="One page with plots."),
        "plot": option(OUTPUT, str | None, None, "--plot", metavar="FILE", help="The main picture as SVG."),
        "metadata": option(OUTPUT, list[str] | None, None, "--metadata", metavar="K=V",
                           help="Kept in the result."),
        "percentile_metrics": option(OUTPUT, str | None, None, "--percentile-metrics", metavar="NAMES",
                                     help="Show these latencies only, e.g. ttft,tpot,itl,e2el."),
        "metric_percentiles": option(OUTPUT, str | None, None, "--metric-percentiles", metavar="P,P",
                                     help="Show these percentiles, e.g. 50,90,99."),
    }


def every() -> dict[str, tuple[Any, Any, Any]]:
    """All of them by name: (type, default, option)."""
    return {**_target(), **_load(), **_dataset(), **_rest()}


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give `command(ctx, asked)` all options above; `asked` is what was typed, by name."""
    return with_table(command, every())


def with_table(command: Callable[..., Any], table: dict[str, tuple[Any, Any, Any]]) -> Callable[..., Any]:
    """Give `command(ctx, asked)` the options of `table`."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    made = [
        inspect.Parameter(name, keyword, default=default, annotation=typing_of(kind, info))
        for name, (kind, default, info) in table.items()
    ]

    def call(ctx: typer.Context, **asked: Any) -> Any:
        return command(ctx, asked)

    first = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    call.__doc__, call.__name__ = command.__doc__, command.__name__
    call.__signature__ = inspect.Signature([first, *made])  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in (first, *made)}
    return call


def typing_of(kind: Any, info: Any) -> Any:
    """`Annotated[kind, info]`, made at run time."""
    from typing import Annotated

    return Annotated[kind, info]


def spread(args: Iterable[str]) -> list[str]:
    """`--goodput ttft:300 tpot:30` as one option per value."""
    found: list[str] = []
    current: str | None = None
    values = 0
    for arg in args:
        if arg.startswith("-"):
            current, values = (arg if arg in SEVERAL else None), 0
        elif current is not None:
            if values and (":" in arg or "=" in arg):
                found.append(current)
            values += 1
        found.append(arg)
    return found
