"""The scheduler, put together: nodes, scorer, queue, scrapes and its own numbers (replica-router part 2)."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from infera_cli.config.settings import ServeSettings
from infera_cli.events import Bus, WorkerChanged
from infera_cli.fleet.member import Member
from infera_cli.fleet.probe import Fetch
from infera_cli.fleet.registry import Registry
from infera_cli.fleet.scrape import Scraper
from infera_cli.gateway.endpoints.nodes import NodeParts, health_word
from infera_cli.gateway.gate import Gate
from infera_cli.gateway.ports import Member as AnyMember
from infera_cli.gateway.scheduling import Scheduling, SchedulingOptions
from infera_cli.gateway.trip import ScheduledTrip
from infera_cli.protocol.engine_metrics import EngineLoad
from infera_cli.protocol.hardware import ASSUMED, Hardware
from infera_cli.protocol.scheduler_file import STATIC_BATCH, NodeEntry, SchedulerFile
from infera_cli.routing.catalogue import Policy
from infera_cli.routing.cost import Speed
from infera_cli.routing.nodes import Measured, Node, NodeProfile, Nodes, Rules
from infera_cli.routing.queue import Queue
from infera_cli.routing.reader import Reader
from infera_cli.routing.scheduler import CostScorer
from infera_cli.telemetry.inferact import NodeMetrics
from infera_cli.telemetry.recorder import Recorder
from infera_cli.wiring.config_source import FromConfig

log = logging.getLogger("infera.scheduler")

_BY_PREFIX = ("prefix-aware", "adaptive")


class Shown:
    """A node as its metrics see it."""

    def __init__(self, member: Member, node: Node, now: float) -> None:
        self.id = member.id
        self.models = member.models
        self.kv_used = node.kv_used(now)
        self.prefix_hits = node.prefix_window.rate(now)
        self.oom_events = node.oom_events
        self.stalled = member.stalled


class Scheduler:
    """The parts of cost routing in one server; `file` is None where nodes are named by other sources."""

    def __init__(self, settings: ServeSettings, policy: Policy, registry: Registry, file: SchedulerFile | None) -> None:
        self._settings = settings
        self._registry = registry
        self._policy = policy
        self._static = file is not None and file.batching.strategy == "static"
        self._batch = (file.batching.cap or STATIC_BATCH) if file is not None else STATIC_BATCH
        self._limits = _limits(file) if file is not None else ()
        self._timeout = _timeout(settings, file)
        self._started = time.monotonic()
        assumed = NodeProfile(speed=_speed(ASSUMED))
        self.nodes = Nodes(assumed, _profiles(file), self._rules(file))
        self.scorer = CostScorer(self.nodes, policy, random.Random())  # noqa: S311 - spreads load, keeps no secret
        self.queue: Queue[ScheduledTrip] = Queue(settings.queue_limit)
        self.scheduling: Scheduling | None = None
        self.metrics: NodeMetrics | None = None

    # ── joining the others ───────────────────────────────────────────────────────────────────────────
    def install(self, gate: Gate, bus: Bus) -> None:
        """Let requests come by here before they are sent; where tokens are weighed instead, only watch."""
        if self._policy.scored == "tokens":
            if self._limits:
                log.warning("%s weighs tokens and lets nobody wait: %s of the file do not count under it",
                            self._policy.name, " and ".join(self._limits))
            return
        gate.dispatcher.scorer = self.scorer
        scheduling = Scheduling(
            gate.dispatcher, self.scorer, self.queue,
            reader=Reader(self._settings.prefix_ignore, chains=self._policy.name in _BY_PREFIX),
            random_bytes=gate.random_bytes, hold=self._registry.hold,
            options=SchedulingOptions(timeout=self._timeout, batch=self._batch if self._static else None),
            clock=gate.clock,
        )  # fmt: skip
        self.scheduling = gate.plan = scheduling
        bus.subscribe(scheduling.on_event, WorkerChanged)

    def watch(self, bus: Bus, recorder: Recorder) -> NodeMetrics:
        """Count for the scheduler's own page."""
        self.metrics = NodeMetrics(bus, self._shown, self._waiting, wall=time.time, flush=recorder.flush)
        recorder.feed(self.metrics.add)
        return self.metrics

    def work(self, fetch: Fetch) -> Iterator[Coroutine[None, None, None]]:
        """What runs as long as the server."""
        yield Scraper(self._registry, fetch, self._heard, stall=self._settings.stall_timeout).run()
        if self.scheduling is not None:
            yield self.scheduling.run()

    def configure(self, file: SchedulerFile) -> None:
        """The file was read again."""
        self.nodes.configure(_profiles(file), self._rules(file))

    def _rules(self, file: SchedulerFile | None) -> Rules:
        most = self._settings.max_kv_usage
        if file is None:
            return Rules(max_kv_usage=most)
        return Rules(
            threshold=file.cache.threshold, pin_system_prompts=file.cache.pin_system_prompts, max_kv_usage=most,
            split=file.batching.split, flush=file.batching.flush,
        )  # fmt: skip

    def _heard(self, member: Member, load: EngineLoad, now: float, restarted: bool) -> None:
        if restarted:
            self.nodes.cleared(member.id)
        self.nodes.measure(member.worker, Measured(
            at=now, kv_used=load.kv_usage_max, cache_tokens=load.kv_cache_size_tokens, waiting=load.waiting,
        ))  # fmt: skip

    # ── what people see ──────────────────────────────────────────────────────────────────────────────
    def parts(self) -> NodeParts:
        """Behind `/status`."""
        assert self.metrics is not None  # noqa: S101 - `watch` came first
        return NodeParts(
            describe=self._describe, total=self.metrics.total, uptime=lambda: time.monotonic() - self._started,
            flush=self.metrics.flush, mode=self._mode,
        )  # fmt: skip

    def _describe(self, member: AnyMember) -> dict[str, Any]:
        assert self.metrics is not None  # noqa: S101 - `watch` came first
        now, name = time.monotonic(), member.worker.id
        node = self.nodes.of(member.worker)
        used = node.kv_used(now)
        return {
            "id": name,
            "hardware": node.profile.hardware,
            "backend": member.spec.engine or node.profile.backend,
            "status": health_word(member, node.degraded(now)),
            "kv_cache_used_pct": None if used is None else round(100 * used, 1),
            "requests_in_flight": member.outstanding,
            "requests_total": self.metrics.requests(name),
            "p99_latency_ms": self.metrics.p99_ms(name),
            "draining": member.draining,
            "stalled": member.stalled,
            "weight": node.profile.weight,
            "cap": node.cap(now),
            "tokens_held": node.tokens,
        }

    def _mode(self) -> dict[str, Any]:
        switch, now = self.scorer.switch, time.monotonic()
        rate = switch.window.rate(now)
        return {
            "policy": self._policy.name,
            "prefix_aware": self._policy.name == "prefix-aware" or (self._policy.name == "adaptive" and switch.on(now)),
            "prefix_hit_rate": None if rate is None else round(rate, 3),
            "requests_waiting": len(self.queue),
        }

    def _shown(self) -> Iterator[Shown]:
        now = time.monotonic()
        for member in self._registry.members():
            yield Shown(member, self.nodes.of(member.worker), now)

    def _waiting(self) -> dict[str, int]:
        return {model or "": self.queue.count(model) for model in self.queue.models}


def _limits(file: SchedulerFile) -> tuple[str, ...]:
    """What of the file only the scheduler's own queue and batches can keep."""
    batching = file.batching
    named = {"max_batch_size": batching.cap is not None, "strategy static": batching.strategy == "static",
             "prefill_decode_split": batching.split}
    return tuple(name for name, given in named.items() if given)


def _timeout(settings: ServeSettings, file: SchedulerFile | None) -> float | None:
    """request_timeout_ms, where the file says it and no flag says otherwise."""
    named = file.server.request_timeout if file is not None else None
    return named if named == settings.request_timeout else None


def _speed(hardware: Hardware) -> Speed:
    return Speed.of(hardware.tflops, hardware.bandwidth_gbps, hardware.vram_gb)


def _profiles(file: SchedulerFile | None) -> dict[str, NodeProfile]:
    if file is None:
        return {}
    static = file.batching.strategy == "static"
    cap = file.batching.cap or (STATIC_BATCH if static else None)
    return {node.id: _profile(node, cap) for node in file.nodes}


def _profile(node: NodeEntry, cap: int | None) -> NodeProfile:
    return NodeProfile(
        speed=_speed(node.profile), hardware=node.hardware, backend=node.backend, weight=node.weight, role=node.role,
        cap=cap,
    )  # fmt: skip


def scheduler_of(
    settings: ServeSettings, policy: Policy, registry: Registry, sources: Sequence[object]
) -> Scheduler | None:
    """The scheduler of this server: with a scheduler file, or a policy that weighs costs; else None."""
    source = next((source for source in sources if isinstance(source, FromConfig)), None)
    if source is None and policy.scored != "cost":
        return None
    scheduler = Scheduler(settings, policy, registry, source.file if source is not None else None)
    if source is not None:
        source.scheduler = scheduler
    return scheduler
