"""How much load `infera bench` itself can make before its figures suffer: `python -m bench.generator`.

Writes bench/results/generator.md: the send lag at 50 streams of 64 tokens a second in one process and at 200 in as
many as there are cores; the most events a second that one process reads while its run is still VALID.
`--memory SECONDS` (3600 by default) instead watches the memory of a run so long, which may have neighbours, and writes
bench/results/generator-memory.md. The target is stream_target.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import machine
from bench.record import RESULTS, Bar, grid, publish

TOKENS = 64
LAG = 8.0                # ms
EVENTS = 8_000           # a second
LEVELS = (6_000, 8_000, 10_000, 12_000, 14_000)
REPEATS = 3              # of the runs whose lag counts, interleaved: the machine has moods
RATE = 10                # memory: streams a second,
SAMPLE = 10.0            # seconds between looks,
SETTLED = 120.0          # and seconds that do not count
GROWTH = 1.05
_HEAD = ("run", "events/s", "send lag p99, ms", "CPU, busiest process", "verdict", "why")


class Run(NamedTuple):
    """What one run said of itself. Milliseconds; `cpu` is the busiest process's share of a core."""

    events: float
    lag: float
    cpu: float
    verdict: str
    reasons: str


@contextmanager
def target(core: int | None) -> Iterator[str]:
    """The target on its core; its address."""
    pin = ["taskset", "-c", str(core)] if core is not None else []
    with subprocess.Popen([*pin, sys.executable, "-m", "bench.stream_target"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


def command(url: str, rate: float, seconds: float, result: Path, processes: int = 1) -> list[str]:
    """`infera bench` at `rate` streams a second."""
    return [sys.executable, "-m", "infera_cli", "bench", "--base-url", url, "--rate", f"{rate:g}", "-d", f"{seconds:g}",
            "--isl", "100", "--osl", str(TOKENS), "--processes", str(processes), "--allow-degraded",
            "--result-filename", str(result)]


def measured(url: str, rate: float, seconds: float, folder: Path, *, cores: Sequence[int], processes: int = 1) -> Run:
    """One run on those cores."""
    result = folder / "result.json"
    pin = ["taskset", "-c", ",".join(map(str, cores))]
    done = subprocess.run([*pin, *command(url, rate, seconds, result, processes)], capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"infera bench ended with {done.returncode}: {done.stderr.decode(errors='replace')[-500:]}")
    return read(json.loads(result.read_bytes())["runs"][0])


def read(run: dict[str, Any]) -> Run:
    """A run out of a result file. Events are counted between the first and the last completion of a request."""
    figures, verdict = run["figures"], run["verdict"]
    return Run(
        events=figures["rates"]["between_completions"] * figures["counts"]["output_tokens"] / figures["counts"]["ok"],
        lag=figures["latency"]["lag"]["p99"] * 1e3, cpu=run["client"]["cpu_max"],
        verdict="VALID" if verdict["status"] == "VALID" else "INVALID", reasons="; ".join(verdict["reasons"]),
    )


# ── send lag, events ─────────────────────────────────────────────────────────────────────────────────
def speed(seconds: float, folder: Path) -> tuple[list[Bar], list[Sequence[str]]]:
    """The bars, and a row for every run."""
    load, upstream = machine.two_cores()
    every = sorted(os.sched_getaffinity(0))
    rows: list[Sequence[str]] = []
    bars, most = [], 0.0
    with target(upstream) as url:
        one, many = list[Run](), list[Run]()
        for _ in range(REPEATS):
            one.append(measured(url, 50, seconds, folder, cores=[load]))
            many.append(measured(url, 200, seconds, folder, cores=every, processes=len(every)))
        rows += [_row("50 streams/s, 1 process", run) for run in one]
        rows += [_row(f"200 streams/s, {len(every)} processes", run) for run in many]
        bars.append(_lag("50 streams/s in one process", one))
        bars.append(_lag(f"200 streams/s in {len(every)} processes", many))
        for level in LEVELS:
            found = measured(url, level / TOKENS, seconds, folder, cores=[load])
            rows.append(_row(f"{level:,} events/s asked, 1 process", found))
            if found.verdict != "VALID":
                break
            most = max(most, found.events)
    says = "events a second that one process reads in a VALID run (98 % of what is asked counts)"
    bars.append(Bar(says, f"≥ {EVENTS:,}", f"{most:,.0f}", most >= 0.98 * EVENTS))
    return bars, rows


def _lag(where: str, runs: Sequence[Run]) -> Bar:
    lag = median(run.lag for run in runs)
    return Bar(f"send lag p99 at {where}, median of {len(runs)} runs", f"≤ {LAG:g} ms", f"{lag:.1f} ms", lag <= LAG)


def _row(name: str, run: Run) -> Sequence[str]:
    return (name, f"{run.events:,.0f}", f"{run.lag:.1f}", f"{run.cpu:.0%}", run.verdict, run.reasons)


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────
def memory(seconds: float, folder: Path) -> tuple[list[Bar], list[Sequence[str]]]:
    """A run at an easy rate, looked at all the time."""
    core = max(os.sched_getaffinity(0))
    looks: list[tuple[float, float]] = []
    with target(None) as url:
        result = folder / "result.json"
        process = machine.Process(command(url, RATE, seconds, result), core=core, log=folder / "bench.log")
        while process.popen.poll() is None:
            looks.append((time.perf_counter() - process.started, process.resident() / 1e6))
            time.sleep(SAMPLE)
    if process.popen.returncode:
        raise SystemExit(f"infera bench ended with {process.popen.returncode}: {process.last_words()}")
    run = json.loads(result.read_bytes())["runs"][0]
    loaded = [(at, size) for at, size in looks if SETTLED <= at <= seconds] or looks
    tenth = max(1, len(loaded) // 10)
    first, last = (median(size for _at, size in part) for part in (loaded[:tenth], loaded[-tenth:]))
    counts = run["figures"]["counts"]
    bar = Bar(f"resident memory at the end of {seconds:,.0f} s ÷ that after {SETTLED:g} s", f"≤ {GROWTH:g}",
              f"{last / first:.3f}", last <= GROWTH * first)
    return [bar], [
        ("load", f"{counts['ok']:,} streams of {TOKENS} tokens, {RATE} a second; {counts['failed']} failed"),
        (f"resident after {SETTLED:g} s (median of the first tenth)", f"{first:.1f} MB"),
        ("at the end of the load (median of the last tenth)", f"{last:.1f} MB"),
        ("highest under load", f"{max(size for _at, size in loaded):.1f} MB"),
        ("highest while the figures were worked out", f"{max(size for _at, size in looks):.1f} MB"),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, show, write; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", type=float, nargs="?", const=3600.0, metavar="SECONDS", help="watch memory instead")
    parser.add_argument("--quick", action="store_true", help="a first impression; writes nothing")
    asked = parser.parse_args(argv)
    machine.raise_file_limit()
    quick = Path(os.devnull) if asked.quick else None
    with tempfile.TemporaryDirectory(prefix="infera-bench-") as folder:
        if asked.memory is not None:
            bars, rows = memory(asked.memory, Path(folder))
            met = publish(
                quick or RESULTS / "generator-memory.md", "Memory of the load generator",
                how="Written by `python -m bench.generator --memory`: the whole process tree of one `infera bench`, "
                    f"looked at every {SAMPLE:g} s.", tables=[grid(("what", "how much"), rows)], bars=bars)
        else:
            bars, rows = speed(3.0 if asked.quick else 30.0, Path(folder))
            met = publish(
                quick or RESULTS / "generator.md", "The load generator",
                how=f"Written by `python -m bench.generator`. Streams of {TOKENS} events, one every 10 ms each; "
                    "a read is an event.", tables=[grid(_HEAD, rows)], bars=bars)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
