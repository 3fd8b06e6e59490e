"""Asks every worker whether it is well, and what it serves (replica-router §1.7; rulings 9, 12).

`GET /health` is healthy with status 200 exactly; nothing else is ever sent but `GET /v1/models`: a probe
costs no tokens (R107). What a failed probe means is the registry's to know.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Awaitable, Callable
from math import inf
from typing import Protocol

from infera_cli.events import Event, WorkerChanged
from infera_cli.fleet.member import Member
from infera_cli.fleet.registry import Registry
from infera_cli.protocol.model_cards import parse_cards
from infera_cli.routing.types import WorkerSpec

log = logging.getLogger("infera.fleet")

_GOLDEN = 0.6180339887498949
_BEATS = 20  # of an interval: so many groups are all probes spread over
_OUR_LIMITS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL}
"""This machine could not open a connection, which says nothing about the worker (replica-router §1.7)."""


class Reply(Protocol):
    """A complete answer, as far as it matters here."""

    @property
    def status(self) -> int:
        """The final status; 1xx are skipped."""

    @property
    def body(self) -> bytes:
        """The body, decoded from chunks; of bounded size."""


class Fetch(Protocol):
    """One small GET to a worker, on a connection of its own, with the worker's own key."""

    async def __call__(self, spec: WorkerSpec, path: str, *, timeout: float) -> Reply:  # noqa: ASYNC109
        """The answer to `GET path` below the worker's base URL; redirects are not followed.

        Raises OSError for any failure, TimeoutError when it takes longer than `timeout` seconds in all.
        """


NODE_PROBE_TIMEOUT = 2.0
"""Seconds that a probe of a scheduler's node may take (replica-router §2.10)."""


def probe_timeout(connect_timeout: float) -> float:
    """Seconds a probe may take: the connect time-out, as with the replica router, but never under two.

    SGLang's /health generates a token and sleeps in steps of a second, so a good answer takes at least one
    (engines.md §2.2). A stalled SGLang answers 503 only after 20 s; such a probe counts as failed here, which
    is what it says too, unless bytes of an answer arrive meanwhile.
    """
    return max(connect_timeout, 2.0)


class _Watch:
    """What the prober remembers of a member."""

    __slots__ = ("complained", "learn_at", "member")

    def __init__(self, member: Member) -> None:
        self.member = member
        self.learn_at = -inf        # due at once
        self.complained = False


class Prober:
    """Probes each member on a schedule of its own, from the moment it appears until it goes (B43).

    `interval` and `timeout` are seconds; models are asked for again every `relearn` seconds, when a worker
    turns ready, and at each probe while unknown. `clock` is the one the registry's times are of.
    """

    def __init__(
        self, registry: Registry, fetch: Fetch, *, interval: float = 5.0, timeout: float = 5.0,
        relearn: float = 30.0, clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:  # fmt: skip
        self._registry = registry
        self._fetch = fetch
        self._interval = interval
        self._timeout = timeout
        self._relearn = relearn
        self._clock = clock
        self._sleep = sleep
        self._watched: dict[Member, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = False
        self._sync_due = False
        self._begun = 0
        self._started = 0.0

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────
    def start(self) -> None:
        """Begin, with one probe of everybody at once; needs a running loop."""
        self._running = True
        self._started = self._clock()
        self._spawn(self._sweep())
        self.sync()

    def sync(self) -> None:
        """Take up members that came, let go of those that went."""
        self._sync_due = False
        if not self._running:
            return
        members = dict.fromkeys(self._registry.members())
        for gone in [member for member in self._watched if member not in members]:
            self._watched.pop(gone).cancel()
        for member in members:
            if member not in self._watched:
                self._watched[member] = self._spawn(self._watch(member))

    def on_event(self, event: Event) -> None:
        """A listener for the bus: many workers that come or go at one time cost one `sync`."""
        changed = isinstance(event, WorkerChanged) and event.what in ("added", "removed")
        if changed and self._running and not self._sync_due:
            self._sync_due = True
            asyncio.get_running_loop().call_soon(self.sync)

    async def stop(self) -> None:
        """End all probes; returns when the last has ended."""
        self._running = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._watched.clear()

    def _spawn(self, job: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ── schedules ────────────────────────────────────────────────────────────────────────────────────
    async def _sweep(self) -> None:
        while True:
            await self._sleep(self._interval)
            self._guarded_sweep()

    def _guarded_sweep(self) -> None:
        try:
            self._registry.sweep(self._clock())
        except Exception:
            log.exception("sweeping the pins failed; going on")

    async def _watch(self, member: Member) -> None:
        watch = _Watch(member)
        gap = self._interval * self._first_gap()
        while True:
            due = self._on_beat(self._clock() + gap)
            gap = self._interval
            try:
                await self._round(watch)
            except OSError as error:
                log.warning("%s could not be probed, for want of resources here: %s", member.id, error)
            except Exception:  # one bad cycle must not end the poller (replica-router §1.7)
                log.exception("a probe of %s failed in an unforeseen way; going on", member.id)
            await self._sleep(max(0.0, due - self._clock()))

    def _on_beat(self, when: float) -> float:
        # Probes that are due at nearly one time wake together: out of a cold start each costs three times as much.
        beat = self._interval / _BEATS
        return self._started + round((when - self._started) / beat) * beat

    def _first_gap(self) -> float:
        # All begin at once. From 0.5 to 1.5 intervals later they are spread evenly, whatever their number:
        # multiples of the golden ratio fall into the largest gap. A lone worker keeps the interval exactly.
        phase = (0.5 + self._begun * _GOLDEN) % 1.0
        self._begun += 1
        return 0.5 + phase

    # ── one probe ────────────────────────────────────────────────────────────────────────────────────
    async def _round(self, watch: _Watch) -> None:
        member, was_ready, started = watch.member, watch.member.ready, self._clock()
        fault = await self._fault(member)
        if fault is None:
            self._registry.probed(member, True, self._clock())
        elif member.last_alive < started:
            self._registry.probed(member, False, self._clock(), fault)
        else:
            log.debug("%s: probe failed (%s), but its streams move", member.id, fault)
        if fault is None and (not was_ready or not member.models or self._clock() >= watch.learn_at):
            await self._learn(watch)

    async def _fault(self, member: Member) -> str | None:
        try:
            reply = await self._fetch(member.spec, "/health", timeout=self._timeout)
        except OSError as error:
            if error.errno in _OUR_LIMITS:
                raise
            return self._words(error)
        if reply.status != 200 and member.spec.engine == "custom":
            reply = await self._fetch(member.spec, "/v1/models", timeout=self._timeout)
            return None if reply.status == 200 else f"/health and /v1/models answered {reply.status}"
        return None if reply.status == 200 else f"/health answered {reply.status}"

    async def _learn(self, watch: _Watch) -> None:
        watch.learn_at = self._clock() + self._relearn
        fault = await self._models_fault(watch.member)
        if fault is None:
            watch.complained = False
        elif not watch.complained:
            watch.complained = True
            log.warning("%s: the list of its models is not known anew: %s", watch.member.id, fault)

    async def _models_fault(self, member: Member) -> str | None:
        try:
            reply = await self._fetch(member.spec, "/v1/models", timeout=self._timeout)
        except OSError as error:
            return self._words(error)
        if reply.status == 401:
            return "/v1/models answered 401; give the worker's key by --worker-api-key-file or api_key_file"
        if reply.status != 200:
            return f"/v1/models answered {reply.status}"
        cards = parse_cards(reply.body)
        if cards is None:
            return "/v1/models answered with something that is no list of models"
        self._registry.models_learned(member, cards)
        return None

    def _words(self, error: OSError) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {self._timeout:g} s"
        return str(error) or type(error).__name__
