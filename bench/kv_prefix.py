"""`python -m bench.kv_prefix`: shared prefixes over eight simulated engines, by policy; mean time to first token.

The same pure parts that serve: routing core, prefix index, cost, and the engine model that the simulated engine runs
on, with their KV events. Time is simulated, so the figures do not depend on the machine. Writes
bench/results/kv-prefix.md; exit 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.record import RESULTS, Bar, grid, publish
from infera_cli.blocks import chain
from infera_cli.routing.catalogue import policy
from infera_cli.routing.kv import Held, KvAware, KvBook, KvWeights
from infera_cli.routing.ledger import Lease, Ledger
from infera_cli.routing.pipeline import decide
from infera_cli.routing.prefix import PrefixIndex
from infera_cli.routing.prompt import Prompt
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import Ask, Pool, View, Worker, WorkerSpec
from infera_cli.simulator.cache import Stored
from infera_cli.simulator.engine import EngineModel, Profile

ENGINES = 8
GROUPS = 40
PREFIX, TAIL, OUTPUT = 6000, 200, 64
RATE, SECONDS, SEED = 14.0, 180.0, 7
PROFILE = Profile(prefill_rate=20_000, blocks=4096, block_size=16)
BARS = {"round-robin": 0.5, "least-loaded": 0.7}


@dataclass(frozen=True, slots=True)
class Request:
    """One arrival: when, and its prompt."""

    at: float
    tokens: Sequence[int]
    hashes: Sequence[int]


def workload() -> list[Request]:
    """Poisson arrivals; each takes a group's prefix (popular groups more often) and a tail of its own."""
    dice = random.Random(SEED)
    prefixes = [[group * 100_000 + place for place in range(PREFIX)] for group in range(GROUPS)]
    weights = [1 / (rank + 1) ** 0.5 for rank in range(GROUPS)]
    found, at = [], 0.0
    while (at := at + dice.expovariate(RATE)) < SECONDS:
        (group,) = dice.choices(range(GROUPS), weights)
        tokens = [*prefixes[group], *(dice.randrange(1 << 31, 1 << 32) for _ in range(TAIL))]
        found.append(Request(at, tokens, chain(tokens, PROFILE.block_size)))
    return found


class Run:
    """One policy over cold engines."""

    def __init__(self, name: str, requests: Sequence[Request]) -> None:
        self.policy = policy(name)
        self.requests = requests
        self.engines = [EngineModel(PROFILE, record=True) for _ in range(ENGINES)]
        self.ledger = Ledger()
        self.workers = [
            Worker(WorkerSpec(id=f"w{n}", host="h", port=1 + n, kv_block_size=PROFILE.block_size), self.ledger.open())
            for n in range(ENGINES)
        ]
        self.pool = Pool(self.workers)
        self.book = KvBook(PrefixIndex())
        for worker in self.workers:
            self.book.open(worker, "sim")
        self.kv = KvAware(self.book, KvWeights()) if self.policy.scored == "tokens" else None
        self.turn = 0
        self.open: dict[str, tuple[Lease, Held | None, Request]] = {}
        self.ttft: list[float] = []
        self.served: Counter[str] = Counter()
        self.cached = 0

    def __call__(self) -> None:
        """Serve everything."""
        for number, request in enumerate(self.requests):
            self._until(request.at)
            self._send(str(number), request)
        self._until(float("inf"))

    def _send(self, name: str, request: Request) -> None:
        prompt = Prompt(
            chains={("sim", PROFILE.block_size): request.hashes}, lengths={"sim": len(request.tokens)}
        )
        view = View(self.pool, self.ledger.outstanding, Pins(600), self.turn)
        made = decide(
            Ask(work=prompt), view, self.policy, now=request.at, dice=random.Random(1), slack=0, scorer=self.kv
        )
        self.turn = self.turn if made.turn is None else made.turn
        held = None
        if self.kv is not None:
            choice = self.kv.weigh(Ask(work=prompt), Pool([made.worker]), 0)
            held = self.book.begin(choice, request.at) if choice is not None else None
        self.open[name] = self.ledger.reserve(made.worker), held, request
        self.served[made.worker.id] += 1
        engine = self.engines[self.workers.index(made.worker)]
        engine.submit(name, len(request.tokens), OUTPUT, request.hashes, request.at)

    def _until(self, end: float) -> None:
        """Let the engines run, in the order of what happens."""
        due = [(when, at) for at, engine in enumerate(self.engines) if (when := engine.next_event_time()) is not None]
        heapq.heapify(due)
        while due and due[0][0] <= end:
            now, at = heapq.heappop(due)
            self._advance(at, now)
            following = self.engines[at].next_event_time()
            if following is not None:
                heapq.heappush(due, (following, at))

    def _advance(self, at: int, now: float) -> None:
        for happening in self.engines[at].advance(now):
            lease, held, request = self.open[happening.id]
            if happening.kind == "first":
                self.ttft.append(happening.time - request.at)
                self.cached += happening.cached
            elif happening.kind == "finished":
                lease.settle(now)
                if held is not None:
                    held.release(now)
        if self.kv is not None:
            self._hear(at, now)

    def _hear(self, at: int, now: float) -> None:
        (target,) = self.book.targets_of(self.workers[at])
        size = PROFILE.block_size
        for event in self.engines[at].cache.events():
            if isinstance(event, Stored):
                tokens = self.open[event.owner][2].tokens
                own = tokens[event.start * size : (event.start + len(event.hashes)) * size]
                self.book.index.store(target.slot, event.parent, event.hashes, own, size, now=now)
            else:
                self.book.index.remove(target.slot, [event.hash])


def main() -> int:
    """Run the policies, write the page; 1 when kv-aware is not as much faster as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "kv-prefix.md")
    asked = parser.parse_args()
    requests = workload()
    total = sum(len(request.tokens) for request in requests)
    means, rows = {}, []
    for name in ("kv-aware", "least-loaded", "round-robin"):
        run = Run(name, requests)
        run()
        means[name] = statistics.fmean(run.ttft)
        p99 = sorted(run.ttft)[int(len(run.ttft) * 0.99)]
        rows.append((name, f"{means[name] * 1e3:.1f} ms", f"{p99 * 1e3:.1f} ms", f"{run.cached / total:.1%}",
                     str(max(run.served.values()))))  # fmt: skip
    bars = []
    for name, limit in BARS.items():
        ratio = means["kv-aware"] / means[name]
        bars.append(Bar(f"mean TTFT of kv-aware against {name}", f"≤ {limit:g} ×", f"{ratio:.2f} ×", ratio <= limit))
    met = publish(
        asked.out, "Shared prefixes over eight engines",
        how="Written by `python -m bench.kv_prefix`; simulated time, the same on every machine. "
            f"{len(requests)} requests in {SECONDS:g} s (Poisson, seed {SEED}), {GROUPS} prefixes of {PREFIX} tokens, "
            f"popular ones more often, tails of {TAIL} tokens, answers of {OUTPUT}; {ENGINES} engines, "
            f"each with {PROFILE.tokens} tokens of cache and {PROFILE.prefill_rate:g} prompt tokens a second, "
            "all cold at first.",
        tables=[grid(("policy", "mean TTFT", "p99", "prompt tokens cached", "requests of the busiest"), rows)],
        bars=bars,
    )  # fmt: skip
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
