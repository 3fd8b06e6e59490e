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
from infera_cli.fleet.etcd_client import EtcdClient, Held
from infera_cli.fleet.registration import Registration
from infera_cli.protocol.worker_record import WorkerRecord
from tests.fleet.etcd_worlds import PREFIX, b64, eventually
from tests.fleet.virtual_time import VirtualTime
from tests.support.etcd import Etcd

RECORD = WorkerRecord(worker_id="a:1", url="http://a:1", model_name="m")


def entry(etcd: Etcd) -> dict[str, Any] | None:
    kvs = etcd.call("kv/range", {"key": b64(PREFIX + "a:1")}).get("kvs")
    return kvs[0] if isinstance(kvs, list) else None


class Pauses:
    """A `sleep` that lasts until the test ends it; `asked` are the seconds of each."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._over = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self._over.acquire()

    async def end(self) -> None:
        """This one is over; returns when the next has begun."""
        number = len(self.asked)
        self._over.release()
        await eventually(lambda: len(self.asked) > number)


@asynccontextmanager
async def enrolled(etcd: Etcd, lease_time: int = 30, pauses: Pauses | None = None) -> AsyncIterator[Registration]:
    client = EtcdClient(EtcdAccess(endpoints=(etcd.url,), timeout=1.0))
    sleep = pauses.sleep if pauses is not None else asyncio.sleep
    registration = Registration(client, RECORD, prefix=PREFIX, lease_time=lease_time, sleep=sleep)
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


async def test_c5_a_lost_lease_is_replaced_at_once(etcd: Etcd) -> None:
    """The heartbeat that learns of it enrols again, and does not leave it to the next one seconds later."""
    pauses = Pauses()
    async with enrolled(etcd, pauses=pauses):
        first = entry(etcd)
        assert first is not None
        etcd.call("lease/revoke", {"ID": first["lease"]})
        assert entry(etcd) is None
        await eventually(lambda: pauses.asked != [])
        await pauses.end()
        assert entry(etcd) is not None
        assert all(7.0 <= seconds <= 10.0 for seconds in pauses.asked)


async def test_c5_a_failed_enrolment_is_tried_again_soon(etcd: Etcd) -> None:
    """While etcd is away the tries come much faster than heartbeats; in the new, empty etcd the first one enrols."""
    pauses = Pauses()
    async with enrolled(etcd, pauses=pauses) as registration:
        await eventually(lambda: pauses.asked != [])
        etcd.kill()
        for _ in range(5):
            await pauses.end()
        etcd.wipe()
        etcd.start()
        await pauses.end()
        assert entry(etcd) is not None
        assert registration.enrolled.is_set()
    beat, *tries, after = pauses.asked
    assert min(beat, after) >= 7.0
    assert max(tries) <= 5.0
    assert tries[0] <= 0.5


async def test_s8_a_refused_withdrawal_is_reported(etcd: Etcd, caplog: pytest.LogCaptureFixture) -> None:
    """Etcd answers, and will not: False and an error with its reason in the log, not a success."""
    async with enrolled(etcd) as registration:
        etcd.refuse_strangers()
        assert await registration.withdraw() is False
        assert not registration.enrolled.is_set()
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "could not be taken out of discovery: etcd refuses: etcdserver: user name is empty" in record.getMessage()


async def test_a_withdrawal_that_nobody_answers_is_reported(etcd: Etcd, caplog: pytest.LogCaptureFixture) -> None:
    """An etcd that is gone is no success either."""
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

    async def hold(self, key: str, value: bytes, lease: int) -> Held:
        assert json.loads(value)["worker_id"] == key.removeprefix(PREFIX)
        return Held()

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
    assert len(server.attempts) > 250, "each of them tries again soon, and not at its next heartbeat"
    buckets = [int(at * 10) for at in server.attempts]
    assert max(buckets.count(bucket) for bucket in set(buckets)) <= 0.2 * len(buckets)
