"""What is measured, and how; each scenario adds its samples to the results (rulings 28–30)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

import uvloop

from bench import machine
from bench.contenders import OURS, Contender, NotAvailable, infera
from bench.load import Tally, Traffic, closed_loop, hold_streams, paced
from bench.results import Results

CONNECTIONS = 32
SESSIONS = 1000
EVENTS = 65

UNARY = {
    "unary 2 KB": Traffic(prompt=2000),
    "unary 2 KB, sessions": Traffic(prompt=2000, sessions=SESSIONS),
    "unary 16 KB": Traffic(prompt=16_000),
    "unary 16 KB, sessions": Traffic(prompt=16_000, sessions=SESSIONS),
}
STREAMED = {
    "SSE unpaced": Traffic(prompt=2000, events=EVENTS),
    "SSE paced": Traffic(prompt=2000, events=EVENTS, paced=True),
}
SMALL_FLEET, LARGE_FLEET = "4 replicas", "512 replicas"


@dataclass(frozen=True)
class Plan:
    """How much: `seconds` per sample, `requests` after which memory is read, `streams` held open."""

    rounds: int
    seconds: float
    requests: tuple[int, int]
    streams: int


FULL = Plan(rounds=5, seconds=2.5, requests=(10_000, 1_000_000), streams=2000)
QUICK = Plan(rounds=2, seconds=0.7, requests=(2_000, 20_000), streams=200)


@dataclass
class Bench:
    """The machine set up: this process and the upstreams on one core, room for routers on the other."""

    plan: Plan
    contenders: Sequence[Contender]
    folder: Path
    router_core: int
    load_core: int
    results: Results

    @contextlib.contextmanager
    def upstreams(self, count: int) -> Iterator[list[int]]:
        """`count` ports that answer as engines do."""
        process = machine.Process(
            [sys.executable, "-m", "bench.upstream", str(count)],
            core=self.load_core, log=self.folder / "upstream.log", stdout=subprocess.PIPE,
        )
        try:
            assert process.popen.stdout is not None
            yield json.loads(process.popen.stdout.readline())
        finally:
            process.stop()

    @contextlib.contextmanager
    def running(
        self, contenders: Sequence[Contender], ports: Sequence[int]
    ) -> Iterator[dict[str, tuple[machine.Process, int]]]:
        """Those of `contenders` that start, by name; why others do not is noted."""
        running: dict[str, tuple[machine.Process, int]] = {}
        try:
            for contender in contenders:
                try:
                    running[contender.name] = contender.start(self.folder, ports, self.router_core)
                    self.results.versions[contender.name] = contender.version()
                except NotAvailable as why:
                    self.results.missing[contender.name] = str(why)
                    say(f"NOT MEASURED: {why}")
            yield running
        finally:
            for process, _port in running.values():
                process.stop()


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def run(work: Coroutine[Any, Any, Tally], limit: float) -> Tally:
    """The load, for at most `limit` seconds."""

    async def bounded() -> Tally:
        return await asyncio.wait_for(work, limit)

    return uvloop.run(bounded())


# ── CPU per request ──────────────────────────────────────────────────────────────────────────────────
def cost(
    bench: Bench, process: machine.Process, port: int, traffic: Traffic, connections: int = CONNECTIONS
) -> tuple[float, int]:
    """CPU µs of the router per request under a closed loop, after a short warm-up; and how many failed."""
    seconds = bench.plan.seconds
    run(closed_loop(port, traffic, connections=connections, seconds=seconds / 5), 60)
    before = process.cpu()
    tally = run(closed_loop(port, traffic, connections=connections, seconds=seconds), 60 + seconds)
    return 1e6 * (process.cpu() - before) / max(tally.done, 1), tally.failed


def _costs(
    bench: Bench, scenarios: dict[str, Traffic], connections: int, *, more: int = 0, closely: Sequence[str] = ()
) -> None:
    """All contenders in the plan's rounds; after those come `more` rounds of those that are compared `closely`."""
    rounds = bench.plan.rounds
    with bench.upstreams(2) as ports, bench.running(bench.contenders, ports) as running:
        for number in range(rounds + more):
            say(f"round {number + 1} of {rounds + more}: {', '.join(scenarios)}")
            names = [name for name in running if number < rounds or name in closely]
            for scenario, traffic in scenarios.items():
                for name in rotated(names, number):
                    process, port = running[name]
                    value, failed = cost(bench, process, port, traffic, connections)
                    bench.results.add(scenario, name, value)
                    bench.results.fail(scenario, name, failed)


def rotated(names: list[str], by: int) -> list[str]:
    """Another one first in each round."""
    by %= max(len(names), 1)
    return names[by:] + names[:by]


def unary(bench: Bench) -> None:
    """CPU per unary request: ours and the peers, two upstreams, 32 keep-alive connections."""
    _costs(bench, UNARY, CONNECTIONS)


def sse(bench: Bench) -> None:
    """CPU per stream of 65 events, as fast as it goes and at an engine's pace.

    At an engine's pace the router sleeps between events, and a round's ratio differs by a tenth from the next one's:
    five of them tell little of a bar that is as near.
    """
    _costs(bench, {"SSE unpaced": STREAMED["SSE unpaced"]}, CONNECTIONS)
    more = 4 * bench.plan.rounds
    _costs(bench, {"SSE paced": STREAMED["SSE paced"]}, 4 * CONNECTIONS, more=more, closely=("infera", "nginx"))


def fleet(bench: Bench) -> None:
    """CPU per unary request with 512 replicas and with 4."""
    sizes = {LARGE_FLEET: 512, SMALL_FLEET: 4}
    with bench.upstreams(512) as ports, contextlib.ExitStack() as stack:
        running = {}
        for name, size in sizes.items():
            running[name] = stack.enter_context(bench.running([OURS], ports[:size])).get(OURS.name)
        for number in range(bench.plan.rounds):
            say(f"round {number + 1} of {bench.plan.rounds}: fleet")
            for scenario in ("unary 2 KB", "unary 2 KB, sessions"):
                for name in rotated(list(sizes), number):
                    if found := running[name]:
                        value, failed = cost(bench, *found, UNARY[scenario])
                        bench.results.add(f"fleet, {scenario}", name, value)
                        bench.results.fail(f"fleet, {scenario}", name, failed)


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────
def latency(bench: Bench) -> None:
    """Time to the last byte at 200 requests a second, through the router and direct, in turn."""
    traffic = Traffic(prompt=2000, sessions=SESSIONS)
    seconds = 2 * bench.plan.seconds
    with bench.upstreams(2) as ports, bench.running([OURS], ports) as running:
        places = {"direct": ports[0]} | {name: port for name, (_process, port) in running.items()}
        for number in range(bench.plan.rounds):
            say(f"round {number + 1} of {bench.plan.rounds}: latency")
            for name in rotated(list(places), number):
                run(paced(places[name], traffic, rate=200, seconds=seconds / 10), 60)
                tally = run(paced(places[name], traffic, rate=200, seconds=seconds), 60 + seconds)
                percentiles = quantiles(tally.latencies, n=100, method="inclusive")
                bench.results.add("latency p50", name, 1e3 * percentiles[49])
                bench.results.add("latency p99", name, 1e3 * percentiles[98])
                bench.results.fail("latency", name, tally.failed)


def start(bench: Bench) -> None:
    """`infera --help` beside a bare Typer application, and the time until `/health` answers."""
    executable = str(Path(sys.executable).with_name("infera"))
    bare = str(Path(__file__).parent / "peers" / "bare_typer.py")
    commands = {"infera": [executable, "--help"], "bare Typer": [sys.executable, bare, "--help"]}
    say("start: infera --help, and /health from a cold start")
    for command in commands.values():
        elapsed(command)
    for number in range(3 * bench.plan.rounds):
        for name in rotated(list(commands), number):
            bench.results.add("--help", name, elapsed(commands[name]))
    with bench.upstreams(2) as ports:
        for _ in range(bench.plan.rounds):
            if (seconds := _until_healthy(bench, ports)) is not None:
                bench.results.add("/health after", "infera", seconds)


def elapsed(command: list[str]) -> float:
    """Milliseconds that a command takes."""
    begin = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return 1e3 * (time.perf_counter() - begin)


def _until_healthy(bench: Bench, ports: Sequence[int]) -> float | None:
    port = machine.free_port()
    url = f"http://127.0.0.1:{port}/health"
    process = machine.Process(
        infera(bench.folder, port, ports), core=bench.router_core, log=bench.folder / "start.log"
    )
    try:
        while (seconds := time.perf_counter() - process.started) < 30:
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
                return time.perf_counter() - process.started
            time.sleep(0.005)
        bench.results.missing["/health after"] = f"no answer in {seconds:.0f} s: {process.last_words()}"
        return None
    finally:
        process.stop()


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────
def memory(bench: Bench) -> None:
    """Resident MB after 10,000 and after 1,000,000 requests, half of them with a session of theirs."""
    few, many = bench.plan.requests
    with bench.upstreams(2) as ports, bench.running([OURS], ports) as running:
        for name, (process, port) in running.items():
            done, step = 0, few // 2
            while done < many:
                for traffic in (UNARY["unary 2 KB"], UNARY["unary 2 KB, sessions"]):
                    tally = run(closed_loop(port, traffic, connections=CONNECTIONS, count=step), 600)
                    bench.results.fail("memory", name, tally.failed)
                    done += step
                if done in (few, many):
                    resident = process.resident() / 1e6
                    say(f"memory: {resident:.1f} MB after {done:,} requests")
                    bench.results.add(f"memory after {'few' if done == few else 'many'}", name, resident)


def streams(bench: Bench) -> None:
    """The highest resident MB while 2,000 streams with 100 KB prompts are open and read slowly."""
    traffic = Traffic(prompt=100_000, events=20_000, sessions=SESSIONS)
    count = bench.plan.streams
    say(f"streams: {count} open")
    with bench.upstreams(2) as ports, bench.running([OURS], ports) as running:
        for name, (process, port) in running.items():
            seen: list[float] = []

            def look(process: machine.Process = process, seen: list[float] = seen) -> None:
                seen.append(process.resident() / 1e6)

            work = hold_streams(port, traffic, streams=count, seconds=8, each_second=look)
            tally = run(work, 120)
            bench.results.add("memory with streams", name, max(seen))
            bench.results.fail("memory with streams", name, tally.failed)


SCENARIOS: dict[str, Callable[[Bench], None]] = {
    "unary": unary,
    "sse": sse,
    "fleet": fleet,
    "latency": latency,
    "memory": memory,
    "streams": streams,
    "start": start,
}
