"""A worker's own entry in discovery: a lease, a key on it, and a heartbeat (infera-wire §1.4, §9).

The heartbeat comes at a third of the lease's time; when it fails it is tried again soon, and when the lease is gone
the worker enrols again at once (C5, R124).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from infera_cli.errors import DiscoveryError, DiscoveryRefused
from infera_cli.fleet.backoff import Backoff
from infera_cli.fleet.etcd_access import EtcdAccess, endpoint_urls
from infera_cli.fleet.etcd_client import EtcdClient
from infera_cli.protocol.worker_record import WorkerRecord, encode_record

__all__ = ["EtcdAccess", "EtcdClient", "Registration", "endpoint_urls"]

log = logging.getLogger("infera.launch")

LEASE_TIME = 30
"""Seconds after which a silent worker is forgotten."""


class Registration:
    """Keeps one record alive in etcd, under `prefix`, on a lease of `lease_time` seconds.

    `dice` spreads the heartbeats of many workers; `sleep` takes seconds.
    """

    def __init__(
        self, client: EtcdClient, record: WorkerRecord, *, prefix: str, lease_time: int = LEASE_TIME,
        dice: random.Random | None = None, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:  # fmt: skip
        self._client = client
        self._key = prefix + record.worker_id
        self._value = encode_record(record)
        self._lease_time = lease_time
        self._dice = dice if dice is not None else random.Random()  # noqa: S311 - spreads load, hides nothing
        self._backoff = Backoff(0.25, max(0.5, min(5.0, lease_time / 6)), dice=self._dice)
        self._sleep = sleep
        self._lease: int | None = None
        self._written = False
        self._troubled = False
        self.enrolled = asyncio.Event()
        """Set once the record is in etcd, and for as long as nothing says that it is not."""

    async def run(self) -> None:
        """Enrol, then send heartbeats until cancelled; etcd being away is waited out."""
        while True:
            try:
                await self._beat()
            except DiscoveryError as fault:
                delay = self._backoff.next()
                self._say(fault)
            else:
                delay = max(1.0, self._lease_time / 3) * self._dice.uniform(0.7, 1.0)
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
        if self._lease is not None and self._written and not await self._renewed(self._lease):
            self._lease = None
        if self._lease is None or not self._written:
            await self._enrol()

    async def _renewed(self, lease: int) -> bool:
        if await self._client.keep_alive(lease) > 0:
            self._went_well()
            return True
        log.warning("the lease of %s is gone; enrolling again", self._key)
        self.enrolled.clear()
        return False

    async def _enrol(self) -> None:
        self._written = False
        if self._lease is None:
            self._lease = await self._client.grant(self._lease_time)
        try:
            await self._client.put(self._key, self._value, self._lease)
        except DiscoveryRefused:
            self._lease = None  # most likely it ran out in between
            raise
        self._written = True
        self.enrolled.set()
        self._went_well()
        log.info("enrolled as %s, on a lease of %d s", self._key, self._lease_time)

    def _went_well(self) -> None:
        if self._troubled:
            log.info("heartbeats of %s reach etcd again", self._key)
        self._troubled = False

    def _say(self, fault: DiscoveryError) -> None:
        if not self._troubled:
            log.warning("the heartbeat of %s failed: %s; trying again", self._key, fault.message)
        self._troubled = True
