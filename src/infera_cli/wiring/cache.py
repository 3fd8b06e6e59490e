"""`--router-policy kv-aware`: index, events, tokens and policy, put together (infera-wire §4)."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import cast

from infera_cli.config.settings import ServeSettings
from infera_cli.errors import ConfigError
from infera_cli.events import Bus, Event, WorkerChanged
from infera_cli.fleet.kv_feed.feed import KvFeed
from infera_cli.fleet.kv_feed.intake import Intake
from infera_cli.fleet.registry import Registry
from infera_cli.gateway.gate import Gate
from infera_cli.gateway.kv.dispatch import KvDispatcher
from infera_cli.gateway.kv.figures import Picks
from infera_cli.gateway.kv.plan import KvPlan
from infera_cli.gateway.kv.reader import PromptReader
from infera_cli.gateway.kv.sessions import Sessions
from infera_cli.gateway.upstream.fetch import Fetcher
from infera_cli.protocol.retention import Hint
from infera_cli.routing.catalogue import Policy
from infera_cli.routing.kv import KvAware, KvBook, KvWeights
from infera_cli.routing.prefix import PrefixIndex, Slot
from infera_cli.routing.types import Worker, WorkerSpec
from infera_cli.telemetry.cache import CacheNumbers
from infera_cli.telemetry.drift import Drift
from infera_cli.tokens.load import Tokenizers, load_all
from infera_cli.tokens.normal import STYLES
from infera_cli.wiring.allocator import INDEX_KEPT_BYTES, INDEX_MAPPED_BYTES, keep_freed_memory
from infera_cli.wiring.cache_numbers import cache_numbers
from infera_cli.wiring.sim_tokens import BUILT_IN, sim_prompts
from infera_cli.wiring.tokens_check import TokensCheck

KINDS_SECONDS = 0.25
AGAIN_SECONDS = 5.0
"""Between two beginnings of following, should it ever end."""
GIL_SECONDS = 0.00002
"""How long a thread that works out tokens may hold up the loop at a time."""

log = logging.getLogger("infera.kv")


def style_of(spec: WorkerSpec) -> str:
    """How the engine makes tokens; an unknown one is taken to do it as vLLM does."""
    return spec.engine if spec.engine in STYLES else "vllm"


class CacheAware:
    """The parts of `kv-aware` in one server. Raises ConfigError for a tokenizer that cannot be loaded (R079)."""

    def __init__(self, settings: ServeSettings, registry: Registry) -> None:
        self.registry = registry
        self.tokenizers = tokenizers_of(settings)
        self.index = PrefixIndex(settings.kv_index_max_bytes)
        self.book = KvBook(self.index)
        weights = KvWeights(
            settings.kv_overlap_weight, settings.kv_prefill_overlap_weight, settings.kv_decode_overlap_weight
        )
        self.aware = KvAware(self.book, weights)
        self.picks = Picks()
        self.sessions = Sessions(time.time)
        self.check = TokensCheck(self.tokenizers)
        self.reader = PromptReader(self.tokenizers, self.kinds, is_adapter=self._is_adapter)
        self._unheard = self.reader.unheard()
        self.drift = Drift(lambda worker: registry.member(worker) is not None)
        self.feed: KvFeed | None = None
        self._plan: KvPlan | None = None
        self._fetch: Fetcher | None = None
        self._kinds: set[tuple[str, int]] = set()
        self._kinds_until = 0.0
        self._adapters: frozenset[str] = frozenset()
        self._opened: dict[Worker, None] = {}

    # ── who is there ─────────────────────────────────────────────────────────────────────────────────
    def on_event(self, event: Event) -> None:
        """A listener for the bus: targets stand as soon as their worker does."""
        if not isinstance(event, WorkerChanged):
            return
        if event.what in ("added", "removed"):
            self.meet()
            if event.what == "removed" and self.registry.member(event.worker) is None:
                self.drift.forget(event.worker)
        if event.what in ("added", "removed", "models"):
            self._learn_adapters()
        if event.what in ("models", "ready"):
            self._check_tokens(event.worker)
        if self.feed is not None:
            self.feed.on_event(event)

    def _check_tokens(self, worker: str) -> None:
        member = self.registry.member(worker)
        if member is not None and self._fetch is not None:
            self.check.look(member.spec, member.models, style_of(member.spec), self._fetch)

    def meet(self) -> None:
        """Open targets for workers that came, close those of workers that went."""
        here = {member.worker: member.spec for member in self.registry.members()}
        for worker in [worker for worker in self._opened if worker not in here]:
            del self._opened[worker]
            self.book.close(worker)
        for worker, spec in here.items():
            if worker not in self._opened:
                self._opened[worker] = None
                self.book.open(worker, style_of(spec))
        self._kinds_until = 0.0

    def slots(self, worker: Worker, count: int | None) -> list[Slot]:
        """The slots of a worker, one a rank; `count` where it turned out to have several (feed.Slots)."""
        if worker not in self._opened:
            return []
        targets = self.book.open(worker, style_of(worker.spec), count if count is not None and count > 1 else None)
        return [target.slot for target in targets]

    def kinds(self) -> set[tuple[str, int]]:
        """What prompts are hashed for now; looked up a few times a second."""
        now = time.monotonic()
        if now >= self._kinds_until:
            self._kinds = self.book.kinds()
            self._kinds_until = now + KINDS_SECONDS
        return self._kinds

    def _learn_adapters(self) -> None:
        cards = [card for member in self.registry.members() for card in member.cards]
        self._adapters = frozenset(card["id"] for card in cards if card.get("parent"))

    def _is_adapter(self, model: str) -> bool:
        return model in self._adapters

    # ── running ──────────────────────────────────────────────────────────────────────────────────────
    def plan(self, *, direct: bool, clock: Callable[[], float], hint: Hint | None = None) -> KvPlan:
        """What prepares requests."""
        self._plan = KvPlan(
            self.reader, direct=direct, random_bytes=random.Random().randbytes, clock=clock,  # noqa: S311 - ids
            sessions=self.sessions, hint=hint,
        )  # fmt: skip
        return self._plan

    def follow(self, fetch: Fetcher) -> Coroutine[None, None, None]:
        """Follow events and let promises lapse, until cancelled."""
        self._fetch = fetch
        self.feed = KvFeed(self.registry, fetch, Intake(self.index), self.slots)
        self.meet()
        self.feed.sync()
        return self._run(self.feed)

    async def _run(self, feed: KvFeed) -> None:
        running = asyncio.ensure_future(feed.run())
        began = time.monotonic()
        try:
            while True:
                await asyncio.sleep(0.5)
                now = time.monotonic()
                if running.done() and now - began >= AGAIN_SECONDS:
                    log.error(
                        "following KV events came to an end, which it should not; it is begun again",
                        exc_info=None if running.cancelled() else running.exception(),
                    )
                    running = asyncio.ensure_future(feed.run())
                    began = now
                self.book.tick(now)
        finally:
            running.cancel()
            if self._plan is not None:
                self._plan.close()
            await asyncio.gather(running, return_exceptions=True)

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────
    async def work(self, path: str, body: bytes) -> object:
        """What `infera explain` weighs of a body for that route; others wait for it no longer than for a request."""
        reading = self._unheard.look(path.encode(), body)
        return await self._plan.work_out(reading) if self._plan is not None else reading.bare()

    def blocks_of(self, worker_id: str, rank: int | None) -> int:
        """How many blocks the worker, or its rank, is known to hold; 0 for unknown ones (infera-wire §3.3)."""
        member = self.registry.member(worker_id)
        targets = self.book.targets_of(member.worker) if member is not None else ()
        return sum(len(target.slot) for target in targets if rank is None or target.rank == rank)

    def numbers(self) -> CacheNumbers:
        """For the metrics."""
        return cache_numbers(self)

    def banner(self) -> Iterable[str]:
        """What is printed at the start."""
        for model, prompts in self.tokenizers.by_model.items():
            spans = "spans remembered" if prompts.words.exact else f"nothing remembered: {prompts.words.why}"
            cuts = "message by message" if prompts.cuts else "conversations rendered whole"
            yield f"  tokenizer for {model or 'all models'}: {spans}, {cuts}"


def tokenizers_of(settings: ServeSettings) -> Tokenizers:
    """The tokenizers that are named; simulated engines bring their own. Raises ConfigError."""
    if settings.router_tokenizer_path:
        return load_all(settings.router_tokenizer_path, BUILT_IN)
    if settings.sim:
        return Tokenizers({None: sim_prompts()})
    raise ConfigError("--router-policy kv-aware needs --router-tokenizer-path")


def install(
    settings: ServeSettings, policy: Policy, gate: Gate, registry: Registry, bus: Bus
) -> CacheAware | None:
    """Give the gate what `kv-aware`, mode `direct` and hints need; None where no caches are watched."""
    direct, hint = settings.router_mode == "direct", _hint_of(settings)
    aware = CacheAware(settings, registry) if policy.name == "kv-aware" else None
    if aware is None and settings.session_affinity:
        log.warning("--session-affinity does nothing with --router-policy %s; it is for kv-aware", policy.name)
    if aware is None and not direct:
        if hint is not None:
            gate.plan = KvPlan(None, direct=False, random_bytes=gate.random_bytes, hint=hint)
        return None
    if aware is not None:
        sys.setswitchinterval(GIL_SECONDS)
        keep_freed_memory(INDEX_KEPT_BYTES, INDEX_MAPPED_BYTES)
        policy = policy._replace(pins=settings.session_affinity)
        bus.subscribe(aware.on_event, WorkerChanged)
    before = gate.dispatcher
    dispatcher = KvDispatcher(
        registry, policy, slack=settings.affinity_slack, clock=before.clock,
        scorer=aware.aware if aware is not None else before.scorer,
    )  # fmt: skip
    gate.dispatcher = dispatcher.over(aware.aware if aware else None, aware.picks if aware else Picks())
    if aware is not None:
        gate.plan = aware.plan(direct=direct, clock=before.clock, hint=hint)
    else:
        gate.plan = KvPlan(None, direct=True, random_bytes=gate.random_bytes, clock=before.clock, hint=hint)
    return aware


def _hint_of(settings: ServeSettings) -> Hint | None:
    """What engines are told where a request does not say; None where they are told nothing."""
    return cast("Hint", settings.router_default_retention) if settings.inject_retention else None

