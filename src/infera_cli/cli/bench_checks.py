"""Options of `infera bench` and `infera simulate` that cannot be, or would do nothing, told before anything is sent.

What depends on several options together (a rate without an end, a ramp without both ends) is the plan's own business:
`workload.arrivals.check`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from infera_cli.errors import ConfigError


class Range(NamedTuple):
    """Which numbers make sense, in words and as a test."""

    words: str
    holds: Callable[[float], bool]


COUNT = Range("must be at least 1", lambda value: value >= 1)
SOME = Range("must be 0 or more", lambda value: 0 <= value < math.inf)
POSITIVE = Range("must be a number above 0", lambda value: 0 < value < math.inf)
ENDLESS = Range("must be above 0 (or inf)", lambda value: value > 0)
SHARE = Range("is a share between 0 and 1", lambda value: 0 <= value <= 1)
SPREAD = Range("is a share of at least 0 and below 1", lambda value: 0 <= value < 1)
ANY = Range("must be a number", math.isfinite)

RANGES = {
    "rate": ENDLESS, "burstiness": ENDLESS, "concurrency": COUNT, "max_concurrency": COUNT, "count": COUNT,
    "duration": POSITIVE, "grace": SOME, "warmups": SOME, "ramp_start": POSITIVE, "ramp_end": POSITIVE,
    "speed": POSITIVE, "think": SOME, "repeat": COUNT, "cooldown": SOME, "ready_check": SOME,
    "connect_timeout": POSITIVE, "first_token_timeout": SOME, "idle_timeout": SOME, "request_timeout": SOME,
    "input_len": COUNT, "output_len": COUNT, "range_ratio": SPREAD, "prefix_len": SOME, "groups": COUNT, "zipf": SOME,
    "turns": COUNT, "turns_ratio": SPREAD, "turn_pause": SOME, "block": COUNT, "seed": ANY, "attainment": SHARE,
    "max_error_rate": SHARE, "processes": COUNT, "expect_workers": COUNT,
    "slack": SOME, "ttl": POSITIVE, "gpus": COUNT, "prefill_rate": POSITIVE, "itl_ms": SOME, "sequence_ms": SOME,
    "max_num_seqs": COUNT, "max_batched": COUNT, "block_size": COUNT, "blocks": COUNT,
}


def first_look(ctx: Any, asked: Mapping[str, Any]) -> list[str]:
    """A sentence for every option that was typed and does nothing. Raises ConfigError for a number that cannot be."""
    from infera_cli.workload.names import MEANT_FOR, resolve

    flags = {param.name: param.opts[0] for param in ctx.command.params}
    for name, found in RANGES.items():
        value = asked.get(name)
        if value is not None and not found.holds(value):
            raise ConfigError(f"{flags[name]} {found.words}, not {value:g}")
    dataset = resolve(asked["dataset"])
    return [
        f"{flags[name]} does nothing for the dataset {dataset}; it is for {', '.join(meant)}"
        for name, meant in MEANT_FOR.items()
        if dataset not in meant and name in flags and ctx.get_parameter_source(name).name == "COMMANDLINE"
    ]
