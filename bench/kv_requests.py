"""Whole requests under `kv-aware`: `python -m bench.kv_requests [--quick] [--out PAGE]`; exit 1 when a bar is missed.

Two routers, `session` and `kv-aware`, before stand-in engines that publish their caches. First the CPU of each per
streamed request on a conversation seen before; then how long others wait while a coding agent's turns, and prompts
never seen, come in beside them; the engines announce what they have computed. Load and engines share a core, so the
same is measured with the heavy ones sent past the router: what they cost the load itself is no fault of the router.
Writes bench/results/kv-requests.md, with --quick only where --out says.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench import kv_bodies, machine
from bench.contenders import Contender, infera
from bench.load import Client, Tally, Traffic, closed_loop, connect
from bench.record import RESULTS, Bar, compared, grid, publish
from bench.scenarios import EVENTS, SESSIONS, run
from infera_cli.tokens.load import load
from infera_cli.tokens.prompts import Prompts
from infera_cli.workload.distribution import between

RATIO, WAIT = 1.5, 5.0
OTHERS_RATE, HEAVY_EVERY = 200.0, 0.1
"""Others a second, and seconds from one heavy request to the next."""
CONNECTIONS = {"unpaced": 32, "paced": 128}


@dataclass(frozen=True)
class Seen(Traffic):
    """The conversation that the engines hold, in sessions of the client's own naming."""

    body: bytes = b""

    def requests(self) -> Iterator[bytes]:
        """Endless requests, ready to write."""
        return cycle([request(self.body, f"X-Session-Id: bench-{n}\r\n") for n in range(SESSIONS)])


def request(body: bytes, headers: str = "") -> bytes:
    """A chat request on the wire."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n{headers}"
    return b"%bContent-Length: %d\r\n\r\n%b" % (head.encode(), len(body), body)


def command(flags: Sequence[str], folder: Path, port: int, upstreams: Sequence[int]) -> list[str]:
    """`infera serve` with more flags."""
    return [*infera(folder, port, upstreams), *flags]


Started = tuple[dict[str, tuple[machine.Process, int]], Sequence[int]]


@contextlib.contextmanager
def routers(folder: Path, model: Path, tokens: Sequence[int]) -> Iterator[Started]:
    """Both routers, by policy, on one core; engines on the other, which hold the prompt `tokens`. Yields the routers
    and the ports of the engines."""
    router_core, load_core = machine.two_cores()
    machine.raise_file_limit()
    prompts = folder / "prompts.json"
    prompts.write_text(json.dumps([tokens]))
    upstream = machine.Process([sys.executable, "-m", "bench.kv_upstream", "2", str(prompts)], core=load_core,
                               log=folder / "upstream.log", stdout=subprocess.PIPE)  # fmt: skip
    assert upstream.popen.stdout is not None
    started: dict[str, tuple[machine.Process, int]] = {}
    try:
        ports = json.loads(upstream.popen.stdout.readline())
        for policy in ("session", "kv-aware"):
            flags = ["--router-policy", policy, "--router-tokenizer-path", str(model)]
            ours = Contender(policy, partial(command, flags), lambda: "")
            started[policy] = ours.start(folder, ports, router_core)
        yield started, ports
    finally:
        for process, _ in started.values():
            process.stop()
        upstream.stop()


# ── what a request costs ─────────────────────────────────────────────────────────────────────────────
def cost(process: machine.Process, port: int, traffic: Traffic, connections: int, seconds: float) -> float:
    """CPU µs a stream. Raises SystemExit where a request failed."""
    before = process.cpu()
    tally = run(closed_loop(port, traffic, connections=connections, seconds=seconds), 120)
    if tally.failed or not tally.done:
        raise SystemExit(f"{tally.failed} of {tally.done + tally.failed} requests failed")
    return (process.cpu() - before) / tally.done * 1e6


def costs(up: dict[str, tuple[machine.Process, int]], held: dict[str, object], rounds: int, seconds: float
          ) -> dict[str, list[tuple[float, float]]]:  # fmt: skip
    """(session, kv-aware) of each round, by kind of stream."""
    found: dict[str, list[tuple[float, float]]] = {}
    for kind, connections in CONNECTIONS.items():
        # The stand-in paces what has the word in it; a member that no template reads leaves the prompt as it is.
        document = {**held, "max_tokens": EVENTS, "stream": True, "user": kind if kind == "paced" else "quick"}
        traffic = Seen(prompt=0, events=EVENTS, body=json.dumps(document).encode())
        for process, port in up.values():
            cost(process, port, traffic, connections, 0.5)  # what is seen for the first time
        found[kind] = []
        for _ in range(rounds):
            session, aware = (cost(*up[policy], traffic, connections, seconds) for policy in ("session", "kv-aware"))
            found[kind].append((session, aware))
    return found


# ── what others wait ─────────────────────────────────────────────────────────────────────────────────
class Beside:
    """A steady flow of short requests, and heavy ones at times; whose answers overlap with a heavy one counts."""

    def __init__(self, port: int, heavy: Sequence[bytes], heavy_port: int, seed: int = 0) -> None:
        self._port = port
        self._heavy = heavy
        self._heavy_port = heavy_port
        self._dice = random.Random(seed)
        self._windows: list[tuple[float, float]] = []
        self._spans: list[tuple[float, float]] = []
        self._failed = 0

    async def measure(self, seconds: float) -> list[float]:
        """Latencies in ms of those that had a heavy request beside them."""
        flow = asyncio.create_task(self._others(seconds))
        await self._heavies()
        await flow
        if self._failed:
            raise SystemExit(f"{self._failed} requests failed")
        beside = [
            (begin, end) for begin, end in self._spans
            if any(begin < until and end > since for since, until in self._windows)
        ]  # fmt: skip
        return [(end - begin) * 1e3 for begin, end in beside]

    async def _others(self, seconds: float) -> None:
        small = request(json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello " * 40}]}).encode())
        loop, idle, pending = asyncio.get_running_loop(), list[Client](), set[asyncio.Future[None]]()

        def finished(client: Client, good: bool) -> None:
            self._spans.append((client.sent, time.perf_counter()))
            self._failed += not good
            idle.append(client)
            answered[client].set_result(None)

        answered: dict[Client, asyncio.Future[None]] = {}
        due, end = loop.time(), loop.time() + seconds
        while (due := due + self._dice.expovariate(OTHERS_RATE)) < end:  # else they met the heavy ones at one phase
            await asyncio.sleep(max(due - loop.time(), 0))
            client = idle.pop() if idle else await connect(self._port, finished, Tally())
            answered[client] = loop.create_future()
            pending.add(answered[client])
            client.send(small)
        await asyncio.gather(*pending)
        for client in idle:
            client.transport.close()

    async def _heavies(self) -> None:
        loop = asyncio.get_running_loop()
        over: asyncio.Future[bool] = loop.create_future()
        client = await connect(self._heavy_port, lambda _client, good: over.set_result(good), Tally())
        due = loop.time()
        for body in self._heavy:
            due += HEAVY_EVERY
            await asyncio.sleep(max(due - loop.time(), 0))
            over = loop.create_future()
            client.send(request(body))
            self._failed += not await over
            self._windows.append((client.sent, time.perf_counter()))
        client.transport.close()


class Waits(NamedTuple):
    """Latencies in ms of those beside a heavy request that went past the router, or through it."""

    past: list[float]
    through: list[float]

    def percentile(self, share: float) -> tuple[float, float]:
        """Of both."""
        return between(sorted(self.past), share), between(sorted(self.through), share)


def announce(engines: Sequence[int], coming: Sequence[kv_bodies.Announced]) -> None:
    """Tell the engines what they will have computed when they have served what comes."""
    for port in engines:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("POST", "/will_hold", json.dumps(coming))
        if connection.getresponse().status != http.HTTPStatus.OK:
            raise SystemExit("the engine's stand-in takes no announcements")
        connection.close()


def waits(port: int, engines: Sequence[int], prompts: Prompts, rounds: int, count: int) -> dict[str, Waits]:
    """What others wait beside `count` heavy requests of each kind a round."""
    kinds: dict[str, Callable[[int], Iterator[bytes]]] = {
        "a coding agent's turns of 100,000 tokens": lambda seed: kv_bodies.Agent(seed).requests(),
        "32 KB of text never seen": lambda seed: kv_bodies.strangers(seed=seed),
    }
    found = {name: Waits([], []) for name in kinds}
    seconds = count * HEAVY_EVERY
    gc.disable()  # its pauses would be taken for the router's
    for seed in range(rounds):
        for name, kind in kinds.items():
            first, *heavy = islice(kind(seed), count + 1)
            coming = kv_bodies.announced(prompts, [first, *heavy])
            announce(engines, coming[:1])
            uvloop.run(Beside(port, [first], port).measure(1.0))  # what is seen for the first time
            found[name].past.extend(uvloop.run(Beside(port, heavy, engines[0], seed).measure(seconds)))
            announce(engines, coming[1:])
            found[name].through.extend(uvloop.run(Beside(port, heavy, port, seed).measure(seconds)))
    return found


def latencies(what: str, wait: Waits) -> tuple[str, ...]:
    """A row of the table."""
    (past, through), (past_worst, through_worst) = wait.percentile(0.5), wait.percentile(0.99)
    figures = (f"{figure:.2f}" for figure in (past, past_worst, through, through_worst))
    return what, *figures, f"{len(wait.past):,} / {len(wait.through):,}"


def main() -> int:
    """Write the page; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rounds, seconds, count = (2, 1.0, 20) if asked.quick else (7, 2.5, 60)
    held = kv_bodies.conversation()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = kv_bodies.write_model(folder / "model")
        prompts = load(str(model))
        tokens = kv_bodies.tokens_of(prompts, held)
        with routers(folder, model, tokens) as (up, engines):
            streams = costs(up, held, rounds, seconds)
            waited = waits(up["kv-aware"][1], engines, prompts, rounds, count)
    seen = "CPU of a stream on a conversation seen before"
    rows, bars = compared(streams, seen, against="session", limit=RATIO, places=0)
    for what, wait in waited.items():
        past, through = wait.percentile(0.99)
        named = f"p99 of what others wait because of {what}"
        bars.append(Bar(named, f"≤ {WAIT:g} ms", f"{through - past:.1f} ms", through - past <= WAIT))
    met = publish(
        asked.out or (Path(os.devnull) if asked.quick else RESULTS / "kv-requests.md"), "Whole requests by cache",
        how=f"Written by `python -m bench.kv_requests`. CPU µs of the router a stream of {EVENTS} events on a "
            f"conversation of {len(tokens):,} tokens that both engines hold, in {SESSIONS} sessions: medians of "
            f"{rounds} interleaved rounds of {seconds:g} s. Then {OTHERS_RATE:g} short requests a second, at random, "
            f"through the router beside a heavy one every {HEAVY_EVERY:g} s: latency, in ms, of those open together "
            f"with a heavy one, which went past the router straight to the engine, or through it: {rounds} rounds of "
            f"{count} heavy ones each way, the same ones. The difference is what others wait because of them in the "
            "router.",
        tables=[
            grid(("stream", "session", "kv-aware", "ratio"), rows),
            grid(("beside", "past it: p50", "p99", "through it: p50", "p99", "requests"),
                 [latencies(what, wait) for what, wait in waited.items()]),
        ],
        bars=bars,
    )  # fmt: skip
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
