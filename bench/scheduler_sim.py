"""Simulated nodes of unlike hardware behind the real scheduling code: same `decide`, same queue, virtual time.

Engines are `simulator.EngineModel`, with step and prefill times that follow from the hardware's figures (weights read
once a step, compute per token, KV reads per sequence) and a cache as large as the memory leaves; the scheduler is told
none of that but the hardware's name.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from infera_cli.errors import AllFull
from infera_cli.protocol.hardware import HARDWARE
from infera_cli.routing.catalogue import POLICIES
from infera_cli.routing.cost import Speed
from infera_cli.routing.ledger import Lease, Ledger
from infera_cli.routing.nodes import Measured, NodeProfile, Nodes, Rules
from infera_cli.routing.pipeline import decide
from infera_cli.routing.queue import Queue, Waiting
from infera_cli.routing.scheduler import CostScorer
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import Ask, Pool, View, Worker, WorkerSpec
from infera_cli.routing.work import Work
from infera_cli.simulator.engine import EngineModel, Profile

FLEET = ("h100-80g", "a100-80g", "a100-80g", "rtx-4090", "rtx-4090")
PARAMETERS = 8e9
WEIGHT_BYTES = 2 * PARAMETERS
KV_BYTES = 131_072
"""Of a token, for a model of 8 B with grouped queries."""
BLOCK = 16
CONTEXT = 1000
SCRAPE = 5.0


def profile_of(name: str) -> Profile:
    """An engine on that hardware."""
    row = HARDWARE[name]
    flops, reads = row.tflops * 1e12 * 0.5, row.bandwidth_gbps * 1e9 * 0.7
    room = row.vram_gb * 0.9e9 - WEIGHT_BYTES
    return Profile(
        prefill_rate=flops / (2 * PARAMETERS), step_ms=WEIGHT_BYTES / reads * 1000,
        sequence_ms=(2 * PARAMETERS / flops + KV_BYTES * CONTEXT / reads) * 1000,
        max_num_seqs=256, max_batched_tokens=8192, block_size=BLOCK, blocks=int(room / (KV_BYTES * BLOCK)),
    )  # fmt: skip


@dataclass(slots=True)
class Request:
    """One request and what became of it; times in simulated seconds."""

    name: str
    arrived: float
    prompt: int
    output: int
    priority: int = 5
    chain: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    node: int = -1
    sent: float = -1.0
    ended: float = -1.0
    waiting: Waiting[Request] | None = None
    lease: Lease | None = None

    @property
    def latency(self) -> float:
        """From arrival to the last token."""
        return self.ended - self.arrived


@dataclass(slots=True)
class Outcome:
    """What a run showed. `over_cap` counts requests sent to a node at its effective cap."""

    requests: list[Request]
    over_cap: int = 0
    switches: list[tuple[float, bool]] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        """Nearest rank of the latencies."""
        latencies = sorted(request.latency for request in self.requests)
        return latencies[max(0, -int(-share * len(latencies) // 1) - 1)]


class Simulation:
    """One fleet under one policy. `ooms` are (time, node): that node then reports an out-of-memory."""

    def __init__(
        self, policy: str, *, fleet: tuple[str, ...] = FLEET, cap: int | None = None,
        ooms: tuple[tuple[float, int], ...] = (),
    ) -> None:  # fmt: skip
        self.engines = [EngineModel(profile_of(name)) for name in fleet]
        self.ledger = Ledger()
        specs = [WorkerSpec(id=f"{at}-{name}", host="sim", port=at) for at, name in enumerate(fleet)]
        self.workers = [Worker(spec, self.ledger.open()) for spec in specs]
        profiles = {
            spec.id: NodeProfile(speed=_speed(name), hardware=name, cap=cap)
            for spec, name in zip(specs, fleet, strict=True)
        }
        self.nodes = Nodes(NodeProfile(speed=_speed(fleet[0])), profiles, Rules(max_kv_usage=1.0))
        self.policy = POLICIES[policy]
        self.scorer = CostScorer(self.nodes, self.policy, random.Random(1))
        self.pool = Pool(self.workers)
        self.pins = Pins(600)
        self.queue: Queue[Request] = Queue(1 << 30)
        self.turn = 0
        self.open: dict[str, Request] = {}
        self.ooms = list(ooms)
        self.scraped = 0.0

    def run(self, requests: list[Request]) -> Outcome:
        """Serve them all."""
        outcome = Outcome(requests)
        upcoming = sorted(requests, key=lambda request: request.arrived, reverse=True)
        on = False
        while upcoming or self.open or len(self.queue):
            now = self._next_time(upcoming)
            self._advance(now)
            self._world(now)
            while upcoming and upcoming[-1].arrived <= now:
                self._take(upcoming.pop(), now, outcome)
            self._seat(now, outcome)
            if self.scorer.switch.on(now) is not on:
                on = not on
                outcome.switches.append((now, on))
        return outcome

    def _next_time(self, upcoming: list[Request]) -> float:
        times = [time for engine in self.engines if (time := engine.next_event_time()) is not None]
        if upcoming:
            times.append(upcoming[-1].arrived)
        if len(self.queue) and not times:
            times.append(self.scraped + SCRAPE)
        return min(times)

    def _advance(self, now: float) -> None:
        for at, engine in enumerate(self.engines):
            for happening in engine.advance(now):
                if happening.kind == "finished":
                    self._finish(self.open.pop(happening.id), at, happening.time)

    def _finish(self, request: Request, at: int, ended: float) -> None:
        request.ended = ended
        node = self.nodes.of(self.workers[at])
        node.tokens -= request.prompt + request.output
        if request.lease is not None:
            request.lease.settle(ended)
        node.outcome(True, ended)
        if request.chain:
            self.nodes.residency.learn(self.workers[at].number, self._work(request))

    def _world(self, now: float) -> None:
        while self.ooms and self.ooms[0][0] <= now:
            _time, at = self.ooms.pop(0)
            worker = self.workers[at]
            self.nodes.residency.forget(worker.number)
            self.nodes.of(worker).out_of_memory(self.ledger.outstanding[worker.number], now)
        if now >= self.scraped + SCRAPE:
            self.scraped = now
            for worker, engine in zip(self.workers, self.engines, strict=True):
                self.nodes.measure(worker, Measured(
                    at=now, kv_used=engine.kv_usage, cache_tokens=engine.profile.tokens, waiting=engine.waiting))

    # ── as the gateway does it ───────────────────────────────────────────────────────────────────────
    def _work(self, request: Request) -> Work:
        return Work(params=PARAMETERS, prompt=request.prompt, output=request.output, chain=request.chain,
                    sizes=request.sizes, priority=request.priority)

    def _take(self, request: Request, now: float, outcome: Outcome) -> None:
        if not self._route(request, now, outcome):
            request.waiting = self.queue.put(request, "m", request.priority, now)

    def _seat(self, now: float, outcome: Outcome) -> None:
        while len(self.queue):
            waiting = self.queue.take(("m",), "any", now)
            if waiting is None or self._route(waiting.item, now, outcome):
                continue
            self.queue.put_back(waiting)
            return

    def _route(self, request: Request, now: float, outcome: Outcome) -> bool:
        work = self._work(request)
        if work.chain:
            work.known = self.nodes.residency.known(work.chain)
        view = View(self.pool, self.ledger.outstanding, self.pins, self.turn)
        try:
            decision = decide(
                Ask(work=work), view, self.policy, now=now, dice=random.Random(1), slack=8, scorer=self.scorer)
        except AllFull:
            return False
        at = self.workers.index(decision.worker)
        node = self.nodes.of(decision.worker)
        cap = node.cap(now)
        outcome.over_cap += cap is not None and self.ledger.outstanding[decision.worker.number] >= cap
        if decision.turn is not None:
            self.turn = decision.turn
        if work.chain:
            self.scorer.switch.note(bool(work.known), now)
        request.lease = self.ledger.reserve(decision.worker)
        request.node, request.sent = at, now
        node.tokens += request.prompt + request.output
        self.open[request.name] = request
        blocks = [hash((name, block)) for name in request.chain for block in range(8)]
        self.engines[at].submit(request.name, request.prompt, request.output, blocks, now)
        return True


def _speed(name: str) -> Speed:
    row = HARDWARE[name]
    return Speed.of(row.tflops, row.bandwidth_gbps, row.vram_gb)


# ── workloads ────────────────────────────────────────────────────────────────────────────────────────
def poisson(rate: float, seconds: float, seed: int, *, start: float = 0.0) -> list[Request]:
    """Arrivals of that rate; prompts and answers of log-normal length, medians 700 and 180 tokens."""
    dice = random.Random(seed)
    requests: list[Request] = []
    now = start
    while (now := now + dice.expovariate(rate)) < start + seconds:
        prompt = min(6000, max(20, round(dice.lognormvariate(6.55, 0.7))))
        output = min(1500, max(5, round(dice.lognormvariate(5.2, 0.6))))
        requests.append(Request(f"{seed}-{len(requests)}", now, prompt, output))
    return requests


def joint_capacity(fleet: tuple[str, ...] = FLEET, *, open_requests: int = 64, seed: int = 3) -> float:
    """Requests a second that the nodes finish together, each kept busy with so many at a time."""
    return sum(_capacity(name, open_requests, seed) for name in fleet)


def _capacity(name: str, open_requests: int, seed: int) -> float:
    engine, ahead = EngineModel(profile_of(name)), iter(poisson(1000, 3.0, seed))
    done, now, free = 0, 0.0, open_requests
    while True:
        for _ in range(free):
            request = next(ahead, None)
            if request is None:
                return done / now
            engine.submit(request.name, request.prompt, request.output, (), now)
        now = engine.next_event_time() or now
        free = sum(happening.kind == "finished" for happening in engine.advance(now))
        done += free
