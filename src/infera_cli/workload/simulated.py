"""What a simulation came to: one outcome a policy and number of workers, and the document that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from infera_cli.workload.distribution import Distribution
from infera_cli.workload.figures import Attainment
from infera_cli.workload.goodput import Slo

SCHEMA_VERSION = 1
KIND = "infera-simulation"


class Outcome(msgspec.Struct, frozen=True):
    """One policy on so many workers. Durations in seconds, lengths in tokens.

    `hit_rate` is the share of prompt tokens found in a prefix cache; `imbalance` the busiest worker's requests over
    the mean; `busy` the mean share of the time in which a worker had something to do; `gpu_seconds` what the fleet
    occupied from the first request to the last end.
    """

    policy: str
    workers: int
    requests: int
    too_long: int
    window_s: float
    latency: dict[str, Distribution]
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    hit_rate: float
    shares: tuple[int, ...]
    imbalance: float
    busy: float
    gpu_seconds: float
    preemptions: int
    requests_per_s: float
    output_tokens_per_s: float
    attainment: Attainment | None = None
    goodput: float | None = None

    def meets(self, share: float) -> bool:
        """Whether that share of all requests kept within the limits; those no engine could hold did not."""
        found = self.attainment
        return found is not None and found.judged > 0 and found.good >= share * found.judged


class Simulation(msgspec.Struct, frozen=True):
    """A result file. `replicas` is the answer to "how many workers for these limits" by policy; None: no
    number that was allowed. `left_out` rows of a trace asked for nothing; a dataset of so many `rows` was not enough,
    and was taken again from its beginning."""

    outcomes: tuple[Outcome, ...]
    options: dict[str, Any]
    replicas: dict[str, int | None] = {}
    tool_version: str = ""
    left_out: int = 0
    rows: int | None = None
    kind: str = KIND
    schema_version: int = SCHEMA_VERSION


def encode(simulation: Simulation) -> bytes:
    """`simulation` as JSON, the same bytes for the same simulation."""
    return msgspec.json.format(msgspec.json.encode(simulation), indent=1)


def attainment(
    slos: tuple[Slo, ...], times: Sequence[tuple[float, float, int]], lost: int
) -> Attainment | None:
    """How many of (TTFT, E2EL, output tokens) met the limits; `lost` requests met none."""
    if not slos:
        return None
    met = {slo.kind: 0 for slo in slos}
    good = 0
    for ttft, e2el, output in times:
        found = {"ttft": ttft, "e2el": e2el, "tpot": (e2el - ttft) / (output - 1) if output > 1 else 0.0}
        kept = [found[slo.kind.removesuffix("_sched")] <= slo.limit for slo in slos]
        for slo, fine in zip(slos, kept, strict=True):
            met[slo.kind] += fine
        good += all(kept)
    return Attainment({slo.kind: slo.limit for slo in slos}, len(times) + lost, good, met)


def levels(low: int, high: int) -> list[int]:
    """Numbers of workers to look at: doubling from `low`, and `high`."""
    found = []
    while low < high:
        found.append(low)
        low *= 2
    return [*found, high]
