"""What scheduling costs: `python -m bench.scheduler_speed`. Writes bench/results/scheduler-speed.md.

CPU of the router per unary request under `prefix-aware` and `cost` against `least-loaded` (the unary bench of
`make bench`, rounds interleaved); enqueue and dequeue with 10,000 waiting against a push onto a heap of the same
entries; what `/status` of 512 nodes adds to the latency of requests.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import os
import random
import sys
import tempfile
import urllib.request
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from time import process_time

from bench import machine
from bench.contenders import OURS, Contender, infera
from bench.load import Tally, paced
from bench.record import RESULTS, Bar, grid, publish
from bench.results import Results
from bench.scenarios import CONNECTIONS, FULL, QUICK, UNARY, Bench, cost, rotated, run, say
from infera_cli.routing import queue as queue_module
from infera_cli.routing.queue import Queue

RESULT = RESULTS / "scheduler-speed.md"
WAITING = 10_000
ENTRIES = 2_000
POLICIES = ("least-loaded", "cost", "prefix-aware")
NODES = 512


# ── the queue ────────────────────────────────────────────────────────────────────────────────────────
def queue_ratios(rounds: int = 9) -> tuple[float, float]:
    """(enqueue, dequeue) ÷ a push onto a heap of 10,000 entries (priority negated, arrival, item); CPU, medians."""
    found = [_queue_round(random.Random(number)) for number in range(rounds)]
    pushes, puts, takes = (median(column) for column in zip(*found, strict=True))
    return puts / pushes, takes / pushes


def _queue_round(dice: random.Random) -> tuple[float, float, float]:
    queue: Queue[int] = Queue(2 * WAITING)
    heap: list[tuple[int, int, int]] = []
    for number in range(WAITING):
        priority = dice.randrange(11)
        queue.put(number, "m", priority, number / 100)
        heapq.heappush(heap, (-priority, number, number))
    entries = [(-dice.randrange(11), WAITING + number, number) for number in range(ENTRIES)]
    return (
        _seconds(lambda: deque(map(partial(heapq.heappush, heap), entries), maxlen=0)),
        _seconds(lambda: [queue.put(entry[2], "m", -entry[0], 101.0) for entry in entries]),
        _seconds(lambda: [queue.take(("m",), "n", 102.0) for _entry in entries]),
    )


def _seconds(act: Callable[[], object]) -> float:
    begin = process_time()
    act()
    return process_time() - begin


# ── whole requests ───────────────────────────────────────────────────────────────────────────────────
def _command(policy: str, folder: Path, port: int, upstreams: Sequence[int]) -> list[str]:
    return [*infera(folder, port, upstreams), "--router-policy", policy]


def policies(bench: Bench) -> list[Bar]:
    """CPU per unary request, by policy."""
    contenders = [Contender(name, partial(_command, name), OURS.version) for name in POLICIES]
    with bench.upstreams(2) as ports, bench.running(contenders, ports) as running:
        for number in range(bench.plan.rounds):
            say(f"round {number + 1} of {bench.plan.rounds}")
            for scenario in ("unary 2 KB", "unary 16 KB"):
                for name in rotated(list(running), number):
                    value, failed = cost(bench, *running[name], UNARY[scenario], CONNECTIONS)
                    bench.results.add(scenario, name, value)
                    bench.results.fail(scenario, name, failed)
    return [
        _bar(f"{scenario}: CPU of {name} ÷ least-loaded", bench.results.compare(scenario, name, "least-loaded"), 1.4)
        for scenario in ("unary 2 KB", "unary 16 KB") for name in POLICIES[1:]
    ]  # fmt: skip


def _bar(says: str, value: float, limit: float, unit: str = "") -> Bar:
    return Bar(says, f"≤ {limit:g}{unit}", f"{value:.2f}{unit}", value <= limit)


def status(bench: Bench) -> list[Bar]:
    """p99 latency at 200 requests a second with five looks at /status a second, less that without."""
    with bench.upstreams(NODES) as ports:
        contender = Contender("cost, 512 nodes", partial(_command, "cost"), OURS.version)
        with bench.running([contender], ports) as running:
            _process, port = running[contender.name]
            quiet, looked = [], []
            for _ in range(bench.plan.rounds):
                quiet.append(_p99(run(_paced(port, bench.plan.seconds, 0), 60)))
                looked.append(_p99(run(_paced(port, bench.plan.seconds, 5), 60)))
    added = 1e3 * (median(looked) - median(quiet))
    return [_bar("p99 with /status of 512 nodes five times a second, added", added, 5, " ms")]


async def _paced(port: int, seconds: float, looks: int) -> Tally:
    looking = asyncio.create_task(_look(port, looks)) if looks else None
    tally = await paced(port, UNARY["unary 2 KB"], rate=200, seconds=seconds)
    if looking is not None:
        looking.cancel()
    return tally


async def _look(port: int, looks: int) -> None:
    url = f"http://127.0.0.1:{port}/status"
    while True:
        await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read())
        await asyncio.sleep(1 / looks)


def _p99(tally: Tally) -> float:
    return quantiles(tally.latencies, n=100, method="inclusive")[98]


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────
def measure(quick: bool) -> tuple[str, list[Bar]]:
    """The table of costs, and the bars."""
    router_core, load_core = machine.two_cores()
    machine.raise_file_limit()
    enqueue, dequeue = queue_ratios()
    bars = [_bar("enqueue with 10,000 waiting ÷ heap push", enqueue, 20), _bar("dequeue ÷ heap push", dequeue, 20)]
    os.sched_setaffinity(0, {load_core})
    results = Results()
    with tempfile.TemporaryDirectory(prefix="infera-bench-") as folder:
        bench = Bench(QUICK if quick else FULL, [], Path(folder), router_core, load_core, results)
        bars += policies(bench)
        bars += status(bench)
    rows = [(scenario, name, f"{results.value(scenario, name):.1f}")
            for scenario in results.samples for name in results.samples[scenario]]
    return grid(("scenario", "policy", "CPU µs a request"), rows), bars


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, show, and write where it was not quick."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a first impression; writes nothing")
    quick = parser.parse_args(argv).quick
    table, bars = measure(quick)
    kind = "interpreted" if (queue_module.__file__ or "").endswith(".py") else "compiled (docs/decisions/0009)"
    met = publish(
        Path(os.devnull) if quick else RESULT, "Cost of scheduling",
        how=f"Written by `python -m bench.scheduler_speed`; the package was {kind}.", tables=[table], bars=bars)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
