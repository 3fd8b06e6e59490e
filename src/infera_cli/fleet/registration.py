"""A worker's own entry in discovery: a lease, a key on it, and a heartbeat (infera-wire §1.4, §9).

The heartbeat comes at a third of the lease's time; when it fails it is tried again soon, and when the lease or the key
is gone the worker enrols again at once (C5, R124). A key that is on the lease of somebody else is never touched.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from infera_cli.errors import DiscoveryError, DiscoveryRefused, InferaError
from infera_cli.fleet.backoff import Backoff
from infera_cli.fleet.etcd_access import EtcdAccess, endpoint_urls
from infera_cli.fleet.etcd_client import EtcdClient
from infera_cli.protocol.worker_record import WorkerRecord, encode_record

__all__ = ["EtcdAccess", "EtcdClient", "Registration", "endpoint_urls"]

log = logging.getLogger("infera.launch")

LEASE_TIME = 30
"""Seconds after which a silent worker is forgotten."""


_AFTER_ITS_TIME = 2.0
"""Seconds that a lease may outlive its time before it is somebody's who renews it."""
_LOOK = 1.0
"""Seconds between looks at a key that somebody else has."""


class Registration:
    """Keeps one record alive in etcd, under `prefix`, on a lease of `lease_time` seconds.

    `dice` spreads the heartbeats of many workers; `sleep` takes seconds.
    """

    def __init__(
        self, client: EtcdClient, record: WorkerRecord, *, prefix: str, lease_time: int = LEASE_TIME,
        dice: random.Random | None = None, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._client = client
        self._key = prefix + record.worker_id
        self._value = encode_record(record)
        self._lease_time = lease_time
        self._dice = dice if dice is not None else random.Random()  # noqa: S311 - spreads load, hides nothing
        self._backoff = Backoff(0.25, max(0.5, min(5.0, lease_time / 6)), dice=self._dice)
        self._sleep = sleep
        self._clock = clock
        self._lease: int | None = None
        self._rival: int | None = None
        self._rival_until = 0.0
        self._ever = False
        self._refusals = 0
        self._troubled = False
        self.enrolled = asyncio.Event()
        """Set once the record is in etcd, and for as long as nothing says that it is not."""

    async def run(self) -> None:
        """Enrol, then send heartbeats until cancelled; etcd being away is waited out.

        Before it was ever enrolled: raises DiscoveryRefused when etcd lets nobody in with these credentials, and
        InferaError when another launcher keeps the same worker enrolled.
        """
        while True:
            try:
                await self._beat()
            except DiscoveryError as fault:
                delay = self._backoff.next()
                self._failed(fault)
            else:
                delay = self._pause()
                self._backoff.went_well(delay)
            await self._sleep(delay)

    async def withdraw(self, within: float = 10.0) -> bool:
        """Take the record out, once `run` was cancelled; False, with a line in the log, when that failed (S8)."""
        lease, self._lease = self._lease, None
        self.enrolled.clear()
        if lease is None:
            return True
        try:
            async with asyncio.timeout(within):
                if not await self._client.revoke(lease):
                    log.warning("%s had left discovery before it was taken out: its lease was gone", self._key)
        except (DiscoveryError, TimeoutError) as fault:
            why = getattr(fault, "message", "no answer in time")
            log.error(  # noqa: TRY400 - a refusal of etcd's, not a fault of ours
                "%s could not be taken out of discovery: %s; it goes when its lease ends", self._key, why
            )
            return False
        return True

    async def _beat(self) -> None:
        if self._lease is not None and await self._client.keep_alive(self._lease) <= 0:
            if self.enrolled.is_set():
                log.warning("the lease of %s is gone; enrolling again", self._key)
            self._lease = None
            self.enrolled.clear()
        if self._lease is None:
            self._lease = await self._client.grant(self._lease_time)
        held = await self._client.hold(self._key, self._value, self._lease)
        self._went_well()
        if held.other is not None:
            await self._taken(held.other)
        else:
            self._ours(written=held.written)

    def _ours(self, *, written: bool) -> None:
        if written and self.enrolled.is_set():
            log.warning("the record of %s had been deleted; it is written again", self._key)
        elif not self.enrolled.is_set():
            log.info("enrolled as %s, on a lease of %d s", self._key, self._lease_time)
        self._rival = None
        self._ever = True
        self.enrolled.set()

    async def _taken(self, other: int) -> None:
        """The key is on a lease of somebody else: of a former life, which ends, or of a second launcher."""
        now = self._clock()
        if other != self._rival:
            left = await self._client.time_left(other)
            self._rival, self._rival_until = other, now + left + _AFTER_ITS_TIME
            self.enrolled.clear()
            log.warning(
                "%s is enrolled already, on a lease that is not ours and ends in %d s unless it is renewed; waiting",
                self._key, left,
            )  # fmt: skip
        elif now >= self._rival_until and not self._ever:
            raise InferaError(
                f"another launcher keeps {self._key} enrolled in etcd; stop it, or give this worker another port or "
                "--advertise-host"
            )

    def _pause(self) -> float:
        whole = max(1.0, self._lease_time / 3) if self._rival is None else _LOOK
        return whole * self._dice.uniform(0.7, 1.0)

    def _failed(self, fault: DiscoveryError) -> None:
        """Raises `fault` when etcd refused twice before it ever let us in: one lease may end under our hands."""
        self._refusals = self._refusals + 1 if isinstance(fault, DiscoveryRefused) else 0
        if self._ever or not self._refusals:
            self._say(fault)
        elif self._refusals > 1:
            raise fault

    def _went_well(self) -> None:
        self._refusals = 0
        if self._troubled:
            log.info("heartbeats of %s reach etcd again", self._key)
        self._troubled = False

    def _say(self, fault: DiscoveryError) -> None:
        if not self._troubled:
            log.warning("the heartbeat of %s failed: %s; trying again", self._key, fault.message)
        self._troubled = True
