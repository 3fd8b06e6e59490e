"""Options of `infera bench` and `infera simulate` that cannot be, or would do nothing, told before anything is sent.

What depends on several options together (a rate without an end, a ramp without both ends) is the plan's own business:
`workload.arrivals.check`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from infera_cli.cli.groups import spelled
from infera_cli.errors import ConfigError, UsageError


class Range(NamedTuple):
    """Which numbers make sense, in words and as a test; a finite one is at most `most`."""

    words: str
    holds: Callable[[float], bool]
    most: int = 1_000_000_000

    def fault(self, value: float) -> str:
        """What is wrong with `value`; empty when it makes sense."""
        if not self.holds(value):
            return self.words
        return f"is at most {self.most:,}" if self.most < value < math.inf else ""


COUNT = Range("must be at least 1", lambda value: value >= 1)
SOME = Range("must be 0 or more", lambda value: 0 <= value < math.inf)
POSITIVE = Range("must be a number above 0", lambda value: 0 < value < math.inf)
ENDLESS = Range("must be above 0 (or inf)", lambda value: value > 0)
SHARE = Range("is a share between 0 and 1", lambda value: 0 <= value <= 1)
SPREAD = Range("is a share of at least 0 and below 1", lambda value: 0 <= value < 1)
SEED = Range("is a whole number of at most 18 digits", lambda value: abs(value) < 10**18, 10**18)
REQUESTS = COUNT._replace(most=100_000_000)
TOKENS = COUNT._replace(most=10_000_000)
FEW = COUNT._replace(most=100_000)      # what is made all at once: turns of a conversation, groups of prompts
MACHINES = COUNT._replace(most=1000)    # each is a process, or an open connection

RANGES = {
    "rate": ENDLESS, "burstiness": ENDLESS, "concurrency": COUNT, "max_concurrency": COUNT, "count": REQUESTS,
    "duration": POSITIVE, "grace": SOME, "warmups": SOME._replace(most=100_000_000), "ramp_start": POSITIVE,
    "ramp_end": POSITIVE, "speed": POSITIVE, "think": SOME, "repeat": COUNT, "cooldown": SOME, "ready_check": SOME,
    "connect_timeout": POSITIVE, "first_token_timeout": SOME, "idle_timeout": SOME, "request_timeout": SOME,
    "input_len": TOKENS, "output_len": TOKENS, "range_ratio": SPREAD, "prefix_len": SOME._replace(most=10_000_000),
    "groups": FEW, "zipf": SOME._replace(most=20), "turns": FEW, "turns_ratio": SPREAD, "turn_pause": SOME,
    "block": TOKENS, "seed": SEED, "attainment": SHARE, "max_error_rate": SHARE, "processes": MACHINES,
    "expect_workers": MACHINES, "slack": SOME, "ttl": POSITIVE, "gpus": COUNT, "prefill_rate": POSITIVE,
    "itl_ms": SOME, "sequence_ms": SOME, "max_num_seqs": COUNT, "max_batched": COUNT, "block_size": TOKENS,
    "blocks": COUNT,
}
SHOWN = 24      # of a number that is refused
EVENTS = 8000   # a second that one load process reads, as `python -m bench.generator` shows
CLEARLY = 1.1   # times that: less is no reason for a word
DEFAULT_OUTPUT = 128    # tokens of an answer to a prompt that is made up


def first_look(ctx: Any, asked: Mapping[str, Any]) -> list[str]:
    """A sentence for every option that was typed and does nothing.

    Raises ConfigError for a number that cannot be, UsageError for a file that nobody would read.
    """
    from infera_cli.workload.names import FROM_FILE, MEANT_FOR, resolve

    flags = {param.name: spelled(ctx, param) for param in ctx.command.params}
    for name, found in RANGES.items():
        value = asked.get(name)
        if value is not None and (fault := found.fault(value)):
            raise ConfigError(f"{flags[name]} {fault}, not {_short(value)}")

    def typed(name: str) -> bool:
        return name in flags and ctx.get_parameter_source(name).name == "COMMANDLINE"

    if asked["dataset_path"] and not typed("dataset"):
        raise UsageError(f"--dataset-path needs --dataset-name, which says how to read it: {', '.join(FROM_FILE)}")
    dataset = resolve(asked["dataset"])
    said = [
        f"{flags[name]} does nothing for the dataset {dataset}; it is for {', '.join(meant)}"
        for name, meant in MEANT_FOR.items() if dataset not in meant and typed(name)
    ]
    said += [f"{flags[name]} {words}" for name, words in _idle(asked).items() if typed(name)]
    return said + too_small(asked, dataset)


def _idle(asked: Mapping[str, Any]) -> dict[str, str]:
    """The options that do nothing beside the others, and why."""
    load = _load(asked)
    found: dict[str, str] = {}
    if asked["ramp"] is None:
        found |= dict.fromkeys(("ramp_start", "ramp_end"), "does nothing without --ramp-up-strategy")
    if load != "rate":
        found["burstiness"] = "does nothing here: gaps are drawn only for a --request-rate or a ramp"
    if load != "callers":
        found["think"] = "does nothing here: it is a pause of callers (--concurrency)"
    elif asked.get("max_concurrency") is not None:
        found["max_concurrency"] = _capped(asked)
    if not asked.get("master"):
        found["expect_workers"] = "does nothing without --master-bind, where machines join"
    else:
        found["processes"] = "does nothing with --master-bind: every machine that joins is one load process"
    if asked["duration"] is None:
        found["grace"] = "does nothing without --duration, after which it begins"
    if not asked.get("find_max", asked["goodput"]):
        found["attainment"] = "does nothing here: it is for --find-max" if "find_max" in asked else \
            "does nothing without limits (--goodput)"
        found["over"] = "does nothing without --find-max"
    if asked.get("insecure"):
        found["ca"] = "does nothing with --insecure, which trusts everybody"
    return found


def _load(asked: Mapping[str, Any]) -> str:
    """How requests come: `callers` wait for answers, a `rate` has gaps to draw, `given` are the others."""
    kind = (asked.get("sweep") or "").partition("=")[0] or (asked["over"] if asked.get("find_max") else "")
    if asked["concurrency"] is not None or kind in ("concurrency", "auto"):
        return "callers"
    drawn = asked["ramp"] is not None or kind == "rate" or (asked["rate"] is not None and asked["rate"] != math.inf)
    return "rate" if drawn else "given"


def _capped(asked: Mapping[str, Any]) -> str:
    """What a cap is beside callers, who are one already."""
    cap, callers = asked["max_concurrency"], asked["concurrency"]
    if callers is None:
        return f"is below the levels of the search or sweep from {cap} on: callers wait for a place, too"
    if cap >= callers:
        return f"does nothing: there are only {callers} callers (--concurrency)"
    return f"leaves only {cap} of the {callers} callers a place: --concurrency {cap} is the same load"


def too_small(asked: Mapping[str, Any], dataset: str) -> list[str]:
    """A sentence where the load processes are clearly too few to read what is asked for (bench-and-cli §B8)."""
    from infera_cli.workload.names import MADE_UP

    length = asked["output_len"] or (DEFAULT_OUTPUT if dataset in MADE_UP else None)
    rate = _fastest(asked)
    if rate is None or length is None or not asked.get("stream"):
        return []
    turns = asked["turns"] if dataset == "multi-turn" else 1
    events = rate * turns * length
    processes = asked["expect_workers"] if asked["master"] else asked["processes"]
    if events <= CLEARLY * EVENTS * processes:
        return []
    needed = math.ceil(events / EVENTS)
    way = f"--expect-workers {needed} (machines)" if asked["master"] else f"--processes {needed}"
    have = "one load process" if processes == 1 else f"{processes} load processes"
    asked_for = f"answers of {length:,} tokens at this rate are {events:,.0f} events a second"
    return [f"{asked_for}, and {have} may be too slow to read them ({EVENTS:,} each are known to work): {way}"]


def _fastest(asked: Mapping[str, Any]) -> float | None:
    """The highest rate of requests (or conversations) that is asked for; None where it is not known, or without end."""
    kind, _, levels = (asked.get("sweep") or "").partition("=")
    found = [asked["rate"]]
    if asked["ramp"] is not None:
        found = [asked["ramp_start"], asked["ramp_end"]]
    elif kind == "rate":
        try:
            found = [float(level) for level in levels.split(",")]
        except ValueError:
            return None     # refused, or `auto`
    known = [rate for rate in found if rate is not None]
    return max(known) if known and max(known) < math.inf else None


def _short(value: float) -> str:
    """A number as it was typed, unless it is a long one."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= SHOWN else f"{text[:6]}… ({len(text)} digits)"
