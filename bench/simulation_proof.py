"""Does `infera simulate` say what really happens? The same conversations, simulated and sent to a real router.

For each policy `infera serve` is started before simulated engines, `infera bench` sends it conversations
(simulation_talks.py), and the simulator is given the same ones at the same times. Mean TTFT and hit rate must agree
within 10 %, and the policies must come in the same order: two may only swap that both ways are as good as equal. And
they must differ, or their order would say nothing. Run it with `make bench-simulation`; it writes
bench/results/simulation.md. Of the other policies, `cost` decides here as `least-loaded` does, and `random` and
`power-of-two` throw dice that fall in another way each time.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from math import inf
from pathlib import Path
from typing import NamedTuple

from bench import machine, simulation_talks
from infera_cli.config.policies import policy_names
from infera_cli.loadtest.job import DatasetSpec
from infera_cli.simulator import engine
from infera_cli.simulator.engine import Profile
from infera_cli.wiring.simulation import Simulator, Wanted
from infera_cli.workload.arrivals import OpenLoop

RESULT = Path(__file__).with_name("results") / "simulation.md"
POLICIES = ("prefix-aware", "adaptive", "kv-aware", "session", "least-loaded", "round-robin")
WORKERS, SEED, RATE = 6, 5, 1.8
COUNT = simulation_talks.COUNT
PROFILE = Profile(prefill_rate=4000.0)     # so slow that a processor shared with the engines matters little
TOLERANCE = 0.10
TIE = 0.03      # policies are a tie whose TTFTs are no further apart than this, measured and simulated
DIFFERENT = 5   # so many policies must be told apart, each from the next by more than a tie, measured and simulated
INFERA = (sys.executable, "-m", "infera_cli")


class Pair(NamedTuple):
    """One policy: mean TTFT in milliseconds and hit rate, measured and simulated."""

    policy: str
    real_ttft: float
    ttft: float
    real_hits: float
    hits: float

    @property
    def agrees(self) -> bool:
        """Both within the tolerance."""
        return abs(apart(self.real_ttft, self.ttft)) <= TOLERANCE and abs(apart(self.real_hits, self.hits)) <= TOLERANCE


def apart(real: float, simulated: float) -> float:
    """How far the simulation is from the measurement, as a share of it."""
    return simulated / real - 1 if real else float(simulated != real)


def tie(one: Pair, other: Pair) -> bool:
    """Whether both the measurement and the simulation see next to no difference."""
    real, simulated = one.real_ttft / other.real_ttft, one.ttft / other.ttft
    return all(1 - TIE <= ratio <= 1 / (1 - TIE) for ratio in (real, simulated))


def ties(pairs: Sequence[Pair]) -> list[tuple[str, str]]:
    """Which policies tie with which."""
    return [(one.policy, other.policy) for one, other in combinations(pairs, 2) if tie(one, other)]


def swapped(pairs: Sequence[Pair]) -> list[tuple[str, str]]:
    """Policies that are no tie, and that the simulation does not put in the order of the measurement."""
    return [
        (one.policy, other.policy) for one, other in combinations(pairs, 2)
        if not tie(one, other) and (one.real_ttft - other.real_ttft) * (one.ttft - other.ttft) <= 0
    ]


def told_apart(pairs: Sequence[Pair]) -> int:
    """How many policies can be put in a row so that each is clearly slower than the one before, both ways."""
    ordered = sorted(pairs, key=lambda one: one.real_ttft)
    found = 1
    last = ordered[0]
    for one in ordered[1:]:
        if min(one.real_ttft / last.real_ttft, one.ttft / last.ttft) > 1 / (1 - TIE):
            found, last = found + 1, one
    return found


def holds(pairs: Sequence[Pair]) -> bool:
    """Whether all that is claimed is so."""
    return all(one.agrees for one in pairs) and not swapped(pairs) and told_apart(pairs) >= DIFFERENT


@contextmanager
def engines() -> Iterator[list[str]]:
    """Simulated engines; their addresses."""
    ports = [machine.free_port() for _ in range(WORKERS)]
    command = (sys.executable, "-m", "infera_cli.simengine", "--prefill-rate", str(PROFILE.prefill_rate), "--port")
    started = [subprocess.Popen([*command, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
               for port in ports]
    try:
        yield [f"http://127.0.0.1:{port}" for port in ports]
    finally:
        for one in started:
            one.terminate()
        for one in started:
            one.wait(30)


@contextmanager
def fleet(policy: str) -> Iterator[list[str]]:
    """How to start `infera serve` before engines of its own; under `kv-aware` it starts them, and they publish."""
    if policy == "kv-aware":
        yield [sys.executable, "-m", "bench.sim_server", str(PROFILE.prefill_rate), "serve", "--sim", str(WORKERS)]
        return
    with engines() as urls:
        yield [*INFERA, "serve", *(flag for url in urls for flag in ("--worker", url))]


@contextmanager
def serving(policy: str) -> Iterator[str]:
    """`infera serve` under that policy before engines of its own; its address."""
    with fleet(policy) as start:
        command = [*start, "--host", "127.0.0.1", "--port", "0", "--router-policy", policy, "--no-access-log"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            try:
                assert server.stdout is not None
                found = re.search(r"http://\S+", server.stdout.readline())
                if found is None:
                    raise SystemExit(f"infera serve did not start under {policy}")
                _all_ready(found[0])
                yield found[0]
            finally:
                server.terminate()
                server.communicate(timeout=30)


def _all_ready(url: str) -> None:
    """Wait until every engine is in rotation."""
    for _ in range(300):
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            if json.load(answer)["replicas_ready"] == WORKERS:
                return
        time.sleep(0.2)
    raise SystemExit("the simulated engines did not come up")


def measured(policy: str, folder: Path) -> tuple[float, float]:
    """(mean TTFT in ms, hit rate) of a real run."""
    result, dataset = folder / f"{policy}.json", folder / "conversations.jsonl"
    dataset.write_text(simulation_talks.conversations(), encoding="utf-8")
    with serving(policy) as url:
        done = subprocess.run(
            [*INFERA, "bench", "--base-url", url, "--dataset-name", "conversations", "--dataset-path",
             str(dataset), "--ignore-eos", "--rate", str(RATE), "--burstiness", "inf", "-n", str(COUNT),
             "--seed", str(SEED), "--allow-degraded", "--result-filename", str(result)],
            stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SystemExit(f"the measurement of {policy} failed with exit code {done.returncode}")
    figures = json.loads(result.read_bytes())["runs"][0]["figures"]
    counts = figures["counts"]
    return figures["latency"]["ttft"]["mean"] * 1e3, counts["cached_tokens"] / counts["input_tokens"]


def simulated() -> dict[str, tuple[float, float]]:
    """The same by policy, in simulated time."""
    wanted = Wanted(
        arrivals=OpenLoop(RATE, burstiness=inf, count=COUNT), policies=POLICIES, workers=(WORKERS, WORKERS),
        seed=SEED, by_text=True, profile=PROFILE,
        dataset=DatasetSpec(
            "conversations", path="conversations.jsonl", content=simulation_talks.conversations(), output_len=None),
    )
    outcomes = Simulator(wanted).run({}).outcomes
    return {one.policy: (one.latency["ttft"].mean * 1e3, one.hit_rate) for one in outcomes}


def speed() -> Iterator[str]:
    """How many requests are simulated in a second of one core, beside a loop that any Python knows.

    Seconds are CPU time: a simulation is one thread and waits for nothing, so without neighbours that is wall time.
    """
    started = time.process_time()
    seen: dict[int, int] = {}
    for number in range(1_000_000):
        seen[number & 0xFFFF] = number
    loop = time.process_time() - started
    kind = "interpreted" if (engine.__file__ or "").endswith(".py") else "compiled"
    yield f"1,000,000 dict writes take {loop * 1e3:.0f} ms here; the simulator is {kind}."
    for policy in policy_names():
        wanted = Wanted(
            arrivals=OpenLoop(160.0, count=20_000), policies=(policy,), workers=(16, 16),
            dataset=DatasetSpec("prefix", input_len=128, output_len=64, prefix_len=128, range_ratio=0.5),
        )
        started = time.process_time()
        Simulator(wanted).run({})
        took = time.process_time() - started
        yield (f"{policy}: {20_000 / took:,.0f} requests/s at 16 workers "
               f"(one request costs as much as {took / 20_000 / loop * 1e6:.0f} dict writes).")


def table(pairs: Sequence[Pair], said: Sequence[str]) -> str:
    """The page."""
    about, talks = machine.describe(), simulation_talks
    how = (
        f"{COUNT} conversations of {talks.TURNS[0]} to {talks.TURNS[1]} turns, one each {1 / RATE:.2f} s, in "
        f"{talks.GROUPS} groups that share {talks.SYSTEM:,} words ([simulation_talks.py](../simulation_talks.py)), "
        f"behind `infera serve` {WORKERS} simulated engines that compute {PROFILE.prefill_rate:g} prompt tokens a "
        "second. Means over all requests."
    )
    heads = "| policy | TTFT measured, ms | simulated | apart | hit rate measured | simulated | apart | within 10 % |"
    wrong = ", ".join(" and ".join(two) for two in swapped(pairs))
    equal = ", ".join(" and ".join(two) for two in ties(pairs)) or "none"
    apart_enough = "" if told_apart(pairs) >= DIFFERENT else f", TOO FEW: at least {DIFFERENT} must be"
    verdict = (
        f"The order is {f'NOT THE SAME: {wrong}' if wrong else 'the same'}. Only policies that tie may swap: those "
        f"within {TIE:.0%} of each other both measured and simulated ({equal}). {told_apart(pairs)} of the "
        f"{len(pairs)} policies are told apart both ways{apart_enough}."
    )
    order = [
        f"Order by mean TTFT, measured: {', '.join(_order(pairs, 'real_ttft'))}.", "",
        f"Order by mean TTFT, simulated: {', '.join(_order(pairs, 'ttft'))}.", "",
        verdict,
    ]
    leaves_out = "A measured TTFT holds what a simulation leaves out: HTTP, the router, and who else uses the machine."
    place = f"{about['processor']}, {about['cores']} cores, Linux {about['kernel']}, Python {about['python']}"
    return "\n".join([
        "# Simulated and measured", "", how, "", heads, "|---|---|---|---|---|---|---|---|", *map(row, pairs), "",
        *order, "", leaves_out, "", "## Speed", "", *(f"* {line}" for line in said), "",
        f"{place}; measured by `python -m bench.simulation_proof`.", "",
    ])


def _order(pairs: Sequence[Pair], by: str) -> list[str]:
    return [one.policy for one in sorted(pairs, key=lambda one: float(getattr(one, by)))]


def row(one: Pair) -> str:
    """The line of one policy."""
    return (
        f"| {one.policy} | {one.real_ttft:.1f} | {one.ttft:.1f} | {apart(one.real_ttft, one.ttft):+.1%} | "
        f"{one.real_hits:.1%} | {one.hits:.1%} | {apart(one.real_hits, one.hits):+.1%} | "
        f"{'yes' if one.agrees else 'NO'} |"
    )


def main() -> int:
    """Measure, simulate, compare, write; 1 when they do not agree."""
    from_simulation = simulated()
    pairs = []
    with tempfile.TemporaryDirectory() as folder:
        for policy in POLICIES:
            real = measured(policy, Path(folder))
            pairs.append(Pair(policy, real[0], from_simulation[policy][0], real[1], from_simulation[policy][1]))
            print(pairs[-1], file=sys.stderr)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(table(pairs, list(speed())), encoding="utf-8")
    print(RESULT.read_text(encoding="utf-8"))
    return 0 if holds(pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
