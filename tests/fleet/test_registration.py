"""A worker's own entry in etcd (infera-wire §1.4, §9; C5, S8, R124)."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from infera_cli.errors import DiscoveryError, DiscoveryRefused
from infera_cli.fleet.etcd_access import EtcdAccess
from infera_cli.fleet.etcd_client import EtcdClient
from infera_cli.fleet.registration import Registration
from infera_cli.protocol.worker_record import WorkerRecord
from tests.fleet.etcd_worlds import PREFIX, b64, eventually
from tests.fleet.virtual_time import VirtualTime
from tests.support.etcd import Etcd

RECORD = WorkerRecord(worker_id="a:1", url="http://a:1", model_name="m")


def entry(etcd: Etcd) -> dict[str, Any] | None:
    kvs = etcd.call("kv/range", {"key": b64(PREFIX + "a:1")}).get("kvs")
    return kvs[0] if isinstance(kvs, list) else None


@asynccontextmanager
async def enrolled(etcd: Etcd, lease_time: int = 30) -> AsyncIterator[Registration]:
    client = EtcdClient(EtcdAccess(endpoints=(etcd.url,), timeout=1.0))
    registration = Registration(client, RECORD, prefix=PREFIX, lease_time=lease_time)
    task = asyncio.ensure_future(registration.run())
    try:
        await asyncio.wait_for(registration.enrolled.wait(), 10)
        yield registration
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.aclose()


async def test_a_worker_is_there_until_it_withdraws(etcd: Etcd) -> None:
    """Its record stands on a lease, and goes at once when it is taken out."""
    async with enrolled(etcd) as registration:
        found = entry(etcd)
        assert found is not None
        assert found["lease"] != "0"
        assert await registration.withdraw() is True
        assert entry(etcd) is None
        assert not registration.enrolled.is_set()


async def test_heartbeats_keep_the_lease(etcd: Etcd) -> None:
    """Longer than its time, and without writing the record again."""
    async with enrolled(etcd, lease_time=2):
        before = entry(etcd)
        await asyncio.sleep(3.5)
        assert entry(etcd) == before


async def test_c5_a_lost_lease_is_replaced_at_the_next_heartbeat(etcd: Etcd) -> None:
    """The same heartbeat that learns of it enrols again."""
    async with enrolled(etcd, lease_time=3):
        first = entry(etcd)
        assert first is not None
        etcd.call("lease/revoke", {"ID": first["lease"]})
        assert entry(etcd) is None
        await eventually(lambda: entry(etcd) is not None, within=3.0)


async def test_a_wiped_etcd_is_told_again(etcd: Etcd) -> None:
    """Heartbeats fail, then say the lease is unknown; the worker enrols in the new etcd."""
    async with enrolled(etcd, lease_time=3):
        etcd.kill()
        etcd.wipe()
        etcd.start()
        await eventually(lambda: entry(etcd) is not None, within=8.0)


async def test_s8_a_refused_withdrawal_is_reported(etcd: Etcd, caplog: pytest.LogCaptureFixture) -> None:
    """False and an error in the log, not a success."""
    async with enrolled(etcd) as registration:
        etcd.kill()
        assert await registration.withdraw(within=3.0) is False
    assert any("could not be taken out of discovery" in line for line in caplog.messages)


async def test_a_lease_that_was_gone_already_is_no_failure(etcd: Etcd, caplog: pytest.LogCaptureFixture) -> None:
    """The worker is out of discovery, which was the aim; the log says how."""
    with caplog.at_level(logging.WARNING):
        async with enrolled(etcd) as registration:
            found = entry(etcd)
            assert found is not None
            etcd.call("lease/revoke", {"ID": found["lease"]})
            assert await registration.withdraw() is True
    assert any("its lease was gone" in line for line in caplog.messages)


# ── rhythm, on a clock of our own ────────────────────────────────────────────────────────────────────
class Server:
    """etcd as seen by many workers, on a virtual clock: calls fail while it is down, leases end unrenewed."""

    def __init__(self, ttl: float) -> None:
        self.time = VirtualTime()
        self.ttl = ttl
        self.down: tuple[float, float] = (1e9, 1e9)
        self.attempts: list[float] = []
        self.leases: dict[int, float] = {}

    def _reach(self) -> None:
        self.attempts.append(self.time.now)
        if self.down[0] <= self.time.now < self.down[1]:
            raise DiscoveryError("down")

    # what a Registration calls
    async def grant(self, ttl: int) -> int:
        self._reach()
        self.leases[len(self.leases) + 1] = self.time.now + ttl
        return len(self.leases)

    async def put(self, key: str, value: bytes, lease: int) -> None:
        assert json.loads(value)["worker_id"] == key.removeprefix(PREFIX)

    async def keep_alive(self, lease: int) -> int:
        self._reach()
        if self.leases[lease] < self.time.now:
            raise DiscoveryRefused("gone")
        self.leases[lease] = self.time.now + self.ttl
        return int(self.ttl)


def start(server: Server, count: int) -> list[asyncio.Task[None]]:
    made = [
        Registration(
            server, RECORD, prefix=PREFIX, lease_time=10,  # type: ignore[arg-type]
            dice=random.Random(seed), sleep=server.time.sleep,
        )
        for seed in range(count)
    ]
    return [asyncio.ensure_future(one.run()) for one in made]


async def stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_r124_one_missed_heartbeat_never_costs_the_lease() -> None:
    """A lease of 10 s, and no renewal in any window of a second: it never ends."""
    for second in range(1, 10):
        server = Server(10)
        server.down = (float(second), second + 1.0)
        tasks = start(server, 1)
        await server.time.advance(60)
        await stop(tasks)
        assert list(server.leases) == [1]
        assert server.leases[1] > 60


async def test_r124_workers_do_not_retry_in_step() -> None:
    """50 workers that start together and find etcd down for 8 s: no tenth of a second holds a fifth of the tries."""
    server = Server(10)
    tasks = start(server, 50)
    await server.time.advance(0.0)
    server.attempts.clear()
    server.down = (0.0, 8.0)
    await server.time.advance(8.0)
    await stop(tasks)
    assert len(server.attempts) > 100
    buckets = [int(at * 10) for at in server.attempts]
    assert max(buckets.count(bucket) for bucket in set(buckets)) <= 0.2 * len(buckets)
