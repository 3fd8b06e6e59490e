"""Follows a prefix of etcd: reads it whole, then watches from the next revision, for ever (infera-wire §1.4).

Whatever ends the watch, the next step is the same: read whole again and reconcile (C1, C2, R125). While etcd is
away, the last view serves (R122).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from infera_cli.errors import DiscoveryError
from infera_cli.fleet.backoff import Backoff
from infera_cli.fleet.enrolled import Enrolled
from infera_cli.fleet.etcd_client import EtcdClient, Pair, Snapshot
from infera_cli.protocol.worker_record import worker_id_of

log = logging.getLogger("infera.fleet")

SOURCE = "etcd"
_SECOND_LOOK = 1.0


class Rhythm(Protocol):
    """Delays between tries."""

    def next(self) -> float:
        """Seconds until the next try."""

    def went_well(self, seconds: float) -> None:
        """It worked for so long."""


class EtcdSource:
    """Keeps `enrolled` true to what etcd holds below `prefix`.

    Seconds: `pulse` is how often a quiet watch is checked, `lease_time` how long workers that a wiped etcd no
    longer knows are kept, since they will enrol again (rulings 23).
    """

    def __init__(
        self, client: EtcdClient, enrolled: Enrolled, *, prefix: str, lease_time: float = 30.0, pulse: float = 10.0,
        rhythm: Rhythm | None = None, clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:  # fmt: skip
        self._client = client
        self._enrolled = enrolled
        self._prefix = prefix
        self._lease_time = lease_time
        self._pulse = pulse
        self._rhythm: Rhythm = rhythm if rhythm is not None else Backoff(0.1, 15.0)
        self._clock = clock
        self._sleep = sleep
        self._keys: dict[bytes, int] = {}     # what etcd holds: key → revision that wrote it
        self._kept: dict[str, float] = {}     # workers a wiped etcd does not know → until when they stay
        self._cluster: int | None = None
        self._revision = 0
        self._in_step_since = 0.0
        self.stale = True
        """Whether the view may be out of date."""
        self.error: str | None = None
        """Why, in one sentence."""
        self.reconnects = 0
        """How often following was begun anew."""

    async def first_look(self) -> None:
        """Read the view once. Raises DiscoveryError, DiscoveryRefused."""
        try:
            self._settle(await self._client.range(self._prefix))
        except DiscoveryError as fault:
            self._lost(fault.message)
            raise

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                await self._follow()
            except DiscoveryError as fault:
                self._lost(fault.message)
            except Exception:  # whatever it was, the server must go on with the last view
                log.exception("following etcd failed in an unforeseen way; trying again")
                self._lost("following etcd failed in an unforeseen way")
            await self._sleep(self._rhythm.next())
            self.reconnects += 1

    # ── in step ──────────────────────────────────────────────────────────────────────────────────────
    async def _follow(self) -> None:
        """Read whole, then apply changes until something ends it; always raises."""
        self._settle(await self._client.range(self._prefix))
        watching = asyncio.ensure_future(self._watch(self._revision + 1))
        checking = asyncio.ensure_future(self._check())
        both = (watching, checking)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in both:
                if task.done():
                    task.result()
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            self._rhythm.went_well(self._clock() - self._in_step_since)

    async def _watch(self, revision: int) -> None:
        async with contextlib.aclosing(self._client.watch(self._prefix, revision)) as changes:
            async for batch in changes:
                for pair in batch:
                    self._apply(pair)

    async def _check(self) -> None:
        """A watch says nothing when its connection is quietly dead, so ask beside it. Raises when it lags."""
        while True:
            await self._sleep(self._until_check())
            self._let_go()
            if await self._lags():
                await self._sleep(_SECOND_LOOK)  # changes may have been under way
                if await self._lags():
                    raise DiscoveryError("the watch on etcd missed changes, so the view is read anew")

    def _until_check(self) -> float:
        soonest = min(self._kept.values(), default=float("inf")) - self._clock()
        return max(0.0, min(self._pulse, soonest))

    async def _lags(self) -> bool:
        seen = await self._client.newest(self._prefix)
        newest = max((pair.revision for pair in seen.pairs), default=0)
        same = seen.total == len(self._keys) and newest == max(self._keys.values(), default=0)
        return not same or self._is_another(seen)

    def _apply(self, pair: Pair) -> None:
        self._revision = max(self._revision, pair.revision)
        worker_id = self._name(pair)
        if pair.value is None:
            self._keys.pop(pair.key, None)
        else:
            self._keys[pair.key] = pair.revision
        if worker_id is None:
            return
        self._kept.pop(worker_id, None)
        if pair.value is None:
            self._enrolled.drop(worker_id)
        else:
            self._enrolled.put(worker_id, pair.value)

    # ── reconciling ──────────────────────────────────────────────────────────────────────────────────
    def _settle(self, seen: Snapshot) -> None:
        """Make the fleet what `seen` says; removals wait where etcd lost its memory."""
        another = self._is_another(seen)
        if another:
            log.warning("etcd came back without what it knew; workers it misses stay for %g s", self._lease_time)
        named = {self._name(pair): pair for pair in seen.pairs}
        present = {name: pair for name, pair in named.items() if name is not None}
        missing = [name for name in self._enrolled.records if name not in present]
        for name in missing:
            if another:
                self._kept.setdefault(name, self._clock() + self._lease_time)
            elif name not in self._kept:
                self._enrolled.drop(name)
        self._keys = {pair.key: pair.revision for pair in seen.pairs}
        self._cluster, self._revision = seen.cluster, seen.revision
        for name, pair in present.items():
            self._kept.pop(name, None)
            self._enrolled.put(name, pair.value or b"")
        self._found()

    def _is_another(self, seen: Snapshot) -> bool:
        """Whether this is another cluster, or the same one with less than it had."""
        if self._cluster is None:
            return False
        older = any(pair.revision < self._keys.get(pair.key, 0) for pair in seen.pairs)
        return older or seen.cluster != self._cluster or seen.revision < self._revision

    def _let_go(self) -> None:
        """Believe etcd about workers that had their time to enrol again."""
        now = self._clock()
        for name in [name for name, until in self._kept.items() if until <= now]:
            del self._kept[name]
            self._enrolled.drop(name)

    def _name(self, pair: Pair) -> str | None:
        try:
            return worker_id_of(pair.key, self._prefix)
        except ValueError as reason:
            if pair.key not in self._keys and pair.value is not None:
                self._enrolled.refuse_nameless(pair.key, str(reason))
            return None

    def _found(self) -> None:
        if self.error is not None:
            log.info("etcd is followed again, at %s; %d workers", self._client.endpoint, len(self._keys))
        self.stale, self.error = False, None
        self._in_step_since = self._clock()

    def _lost(self, why: str) -> None:
        if self.error is None:
            log.warning("%s; the last view of the workers serves on", why)
        self.stale, self.error = True, why
