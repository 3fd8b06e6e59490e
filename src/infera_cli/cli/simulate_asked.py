"""From what was typed after `infera simulate` to what is simulated and what is written."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from infera_cli.cli import bench_files
from infera_cli.cli.bench_asked import FLAGS, SHAPES, dataset_from, one_of
from infera_cli.cli.bench_compare import read
from infera_cli.cli.console import console
from infera_cli.config.policies import policy_names
from infera_cli.errors import ConfigError, UsageError

DEFAULT_REQUESTS = 1000
ALIKE = 0.1     # what a calibrated engine may be apart from the measured one without a word


def wanted_from(asked: dict[str, Any]) -> Any:
    """What to simulate, a `wiring.simulation.Wanted`. Raises UsageError, ConfigError."""
    from infera_cli.wiring.simulation import Wanted
    from infera_cli.workload import goodput

    if asked["ramp"] is not None:
        one_of("--ramp-up-strategy", asked["ramp"], SHAPES)
    return Wanted(
        arrivals=_arrivals(asked), dataset=dataset_from(asked),
        policies=policies(asked["policy"] or ()), workers=workers(asked["workers"]), profile=_profile(asked),
        seed=asked["seed"], slack=asked["slack"], ttl=asked["ttl"], slos=goodput.parse(asked["goodput"] or ()),
        attainment=asked["attainment"], gpus=asked["gpus"], by_text=asked["by_text"],
    )


def policies(given: Any) -> tuple[str, ...]:
    """Names of policies: several options, or commas between; `all` is every one. Raises UsageError."""
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if "all" in names:
        return tuple(policy_names())
    if given and not names:
        raise UsageError(f"--policy must be one of {', '.join(policy_names())} or all, not nothing")
    for name in names:
        one_of("--policy", name, (*policy_names(), "all"))
    return tuple(dict.fromkeys(names)) or ("session",)


def workers(text: str) -> tuple[int, int]:
    """`8` or `4..64` as (least, most). Raises UsageError, ConfigError."""
    low, dots, high = text.partition("..")
    try:
        found = int(low), int(high if dots else low)
    except ValueError:
        raise UsageError(f"--workers must look like 8 or 4..64, not {text!r}") from None
    if not 1 <= found[0] <= found[1] <= 4096:
        raise ConfigError("--workers are at least 1 and at most 4096, the smaller number first")
    return found


def _arrivals(asked: dict[str, Any]) -> Any:
    from infera_cli.loadtest.options import Options, arrivals
    from infera_cli.workload.names import TRACES

    count, dataset = asked["count"], dataset_from(asked)
    if count is None and asked["duration"] is None and dataset.name not in TRACES:
        count = DEFAULT_REQUESTS
    return arrivals(Options(
        "", dataset=dataset, rate=asked["rate"], burstiness=asked["burstiness"],
        concurrency=asked["concurrency"], count=count, duration=asked["duration"], ramp_shape=asked["ramp"],
        ramp_start=asked["ramp_start"], ramp_end=asked["ramp_end"], speed=asked["speed"], think=asked["think"],
    ))


def _profile(asked: dict[str, Any]) -> Any:
    """The engine: given figures over calibrated ones over defaults."""
    from infera_cli.simulator.engine import Profile

    fields = {"max_num_seqs": asked["max_num_seqs"], "max_batched_tokens": asked["max_batched"],
              "block_size": asked["block_size"], "blocks": asked["blocks"]}
    given = {"prefill_rate": asked["prefill_rate"], "step_ms": asked["itl_ms"], "sequence_ms": asked["sequence_ms"]}
    known = {name: value for name, value in given.items() if value is not None}
    try:
        profile = Profile(**fields)
        return replace(_calibrated(asked["calibrate"], profile) if asked["calibrate"] else profile, **known)
    except ValueError as fault:
        raise ConfigError(f"such an engine cannot be: {fault}") from None


def _calibrated(origin: str, profile: Any) -> Any:
    """`profile` at the speed that a result tells, with a word where that is in doubt."""
    from infera_cli.wiring.calibration import calibrated

    found, apart = calibrated(read(origin), origin, profile)
    if apart is None:
        console.warn(f"the load of {origin} cannot be made again, so its engines' speed is a rough guess")
    elif apart > ALIKE:
        console.warn(f"simulated with the engine read off {origin}, its own load comes out up to {apart:.0%} apart, and"
                     f" so may be what follows: measure two or more loads, with --ignore-eos")
    return found


def shown(wanted: Any) -> dict[str, Any]:
    """What was simulated, for the report."""
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(wanted)
    for name in ("rate", "burstiness"):
        if found["arrivals"].get(name) == inf:
            found["arrivals"][name] = "inf"     # which JSON cannot say
    return found


class Outputs(NamedTuple):
    """The files to write."""

    result: Path | None
    html: Path | None
    plot: Path | None

    def check(self) -> None:
        """Find out before the work that a file cannot be written, or drawn."""
        bench_files.check({FLAGS[name]: path for name, path in self._asdict().items()})
        if (self.html or self.plot) and importlib.util.find_spec("matplotlib") is None:
            raise ConfigError("pictures need matplotlib: pip install 'infera-cli[bench]'")

    def write(self, simulation: Any) -> list[str]:
        """Write a `workload.simulated.Simulation` to them all; a sentence for each that could not be."""
        from infera_cli.workload.simulated import encode

        return bench_files.each({
            self.result: lambda: encode(simulation),
            self.html: lambda: self._page().report(simulation).encode(),
            self.plot: lambda: bytes(self._page().picture(simulation)),
        })

    @staticmethod
    def _page() -> Any:
        """What draws, and takes a moment to load."""
        from infera_cli.report import simulated_page

        return simulated_page


def outputs_from(asked: dict[str, Any]) -> Outputs:
    """The files that were asked for."""
    return Outputs(*(Path(asked[name]) if asked[name] else None for name in ("result", "html", "plot")))
