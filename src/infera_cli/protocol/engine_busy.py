"""How many requests an engine has inside, by its own metrics page (infera-wire §9.2; S14, S16).

Unlike `engine_metrics`, this asks whether the answer can be trusted: a gauge that is missing is not a zero.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_GAUGES = {
    "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    "atom": ("atom:requests_running", "atom:requests_waiting"),
}
_MORE = {  # there only where prefill and decode are apart
    "sglang": (
        "sglang:num_prefill_bootstrap_queue_reqs", "sglang:num_prefill_inflight_queue_reqs",
        "sglang:num_decode_prealloc_queue_reqs", "sglang:num_decode_transfer_queue_reqs",
    ),
}  # fmt: skip
_SAMPLE = re.compile(r"^([a-z]+:\w+)(?:\{[^\n]*?\})?[ \t]+([0-9.eE+]+)[ \t]*(?:\d+)?$", re.MULTILINE)


class Busy(NamedTuple):
    """Requests inside, over all label sets, and the names of gauges that should be there and are not."""

    requests: int
    missing: tuple[str, ...]


def busy(page: bytes) -> Busy | None:
    """What a metrics page says; None where it is of no engine we know, or says nothing of requests."""
    sums: dict[str, float] = {}
    for name, value in _SAMPLE.findall(page.decode("utf-8", "replace")):
        try:
            sums[name] = sums.get(name, 0.0) + float(value)
        except ValueError:
            continue
    for engine, gauges in _GAUGES.items():
        present = [name for name in gauges if name in sums]
        if present:
            counted = [*present, *(name for name in _MORE.get(engine, ()) if name in sums)]
            missing = tuple(name for name in gauges if name not in sums)
            return Busy(round(sum(sums[name] for name in counted)), missing)
    return None
