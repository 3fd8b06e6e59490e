"""Two launchers of one worker, a key that somebody deleted, an etcd that lets nobody in (infera-wire §1.4, §9)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from infera_cli.errors import DiscoveryRefused, InferaError
from infera_cli.fleet.etcd_access import EtcdAccess
from infera_cli.fleet.etcd_client import EtcdClient, Held
from infera_cli.fleet.registration import Registration
from tests.fleet.etcd_worlds import PREFIX, delete, eventually, put
from tests.fleet.test_registration import RECORD, enrolled, entry
from tests.support.etcd import Etcd


@asynccontextmanager
async def trying(
    etcd: Etcd, lease_time: int = 2, *, user: str | None = None, password: str | None = None
) -> AsyncIterator[tuple[Registration, asyncio.Task[None]]]:
    """A registration that may or may not come through."""
    client = EtcdClient(EtcdAccess(endpoints=(etcd.url,), timeout=1.0, user=user, password=password))
    registration = Registration(client, RECORD, prefix=PREFIX, lease_time=lease_time)
    task = asyncio.ensure_future(registration.run())
    try:
        yield registration, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await registration.withdraw()
        await client.aclose()


def lease_of(etcd: Etcd) -> str:
    found = entry(etcd)
    assert found is not None
    return str(found.get("lease", "0"))


async def test_a_second_launcher_leaves_a_healthy_record_alone(etcd: Etcd) -> None:
    """It waits one lease time, says what is wrong, and takes nothing of the first one's along."""
    async with enrolled(etcd, lease_time=2) as first:
        held = entry(etcd)
        async with trying(etcd) as (second, task):
            with pytest.raises(InferaError, match="another launcher keeps /infera/workers/a:1 enrolled"):
                await asyncio.wait_for(task, 10)
            assert not second.enrolled.is_set()
        assert entry(etcd) == held
        assert first.enrolled.is_set()


async def test_a_former_life_is_waited_out(etcd: Etcd, caplog: pytest.LogCaptureFixture) -> None:
    """After kill -9 the old lease has some seconds left; the worker is back when it ends, by itself."""
    lease = int(str(etcd.call("lease/grant", {"TTL": 3})["ID"]))
    put(etcd, "a:1", lease=lease)
    with caplog.at_level(logging.INFO):
        async with trying(etcd) as (again, _):
            await asyncio.wait_for(again.enrolled.wait(), 12)
            assert lease_of(etcd) not in (str(lease), "0")
    assert len([line for line in caplog.messages if "is enrolled already" in line]) == 1


async def test_a_record_on_no_lease_is_taken_over(etcd: Etcd) -> None:
    """Nobody keeps it alive, so waiting for its end would take for ever."""
    put(etcd, "a:1")
    async with enrolled(etcd):
        assert lease_of(etcd) != "0"


async def test_a_deleted_key_is_written_again_at_the_next_beat(etcd: Etcd, caplog: pytest.LogCaptureFixture) -> None:
    """The lease lives on, so nothing but a look at the key can tell."""
    async with enrolled(etcd, lease_time=3) as registration:
        before = lease_of(etcd)
        delete(etcd, "a:1")
        await eventually(lambda: entry(etcd) is not None, within=2.5)
        assert lease_of(etcd) == before
        assert registration.enrolled.is_set()
        await eventually(lambda: any("had been deleted; it is written again" in line for line in caplog.messages))


async def test_a_stolen_key_is_taken_back_when_it_is_free(etcd: Etcd) -> None:
    """Older launchers overwrite, and delete at their end; a worker that was enrolled never gives up."""
    thief = int(str(etcd.call("lease/grant", {"TTL": 60})["ID"]))
    async with enrolled(etcd, lease_time=3) as registration:
        ours = lease_of(etcd)
        put(etcd, "a:1", lease=thief)
        await eventually(lambda: not registration.enrolled.is_set(), within=3)
        assert lease_of(etcd) == str(thief)
        etcd.call("lease/revoke", {"ID": str(thief)})
        await eventually(lambda: entry(etcd) is not None, within=3)
        assert lease_of(etcd) == ours
        assert registration.enrolled.is_set()


async def test_who_waits_takes_out_nothing_of_anybody_else(etcd: Etcd) -> None:
    """Stopped while the other one's record is there, it leaves that."""
    async with enrolled(etcd) as _:
        held = entry(etcd)
        async with trying(etcd, lease_time=30) as (second, _task):
            await asyncio.sleep(0.5)
            assert not second.enrolled.is_set()
        assert entry(etcd) == held


async def test_a_wrong_password_ends_the_first_enrolment(etcd: Etcd) -> None:
    """With etcd's own sentence: waiting does not make it right."""
    etcd.refuse_strangers()
    for user, password in (("root", "wrong"), (None, None)):
        async with trying(etcd, user=user, password=password) as (_, task):
            with pytest.raises(DiscoveryRefused, match="etcd refuses: etcdserver: "):
                await asyncio.wait_for(task, 5)


async def test_credentials_that_are_withdrawn_later_are_waited_out(etcd: Etcd) -> None:
    """A worker that was enrolled once goes on serving, and trying; its lease is renewed without a password."""
    async with enrolled(etcd, lease_time=2) as registration:
        lease = lease_of(etcd)
        etcd.refuse_strangers()
        await asyncio.sleep(4.5)
        assert registration.enrolled.is_set()
        token = str(etcd.call("auth/authenticate", {"name": "root", "password": "pw"})["token"])
        assert int(str(etcd.call("lease/timetolive", {"ID": lease}, token)["TTL"])) > 0


async def test_holding_a_key_is_one_transaction(etcd: Etcd) -> None:
    """Free: written; ours: left as it is, without a new revision; another's: named."""
    client = EtcdClient(EtcdAccess(endpoints=(etcd.url,), timeout=1.0))
    try:
        mine, other = await client.grant(30), await client.grant(30)
        assert await client.hold(PREFIX + "a:1", b"1", mine) == Held(written=True)
        before = entry(etcd)
        assert await client.hold(PREFIX + "a:1", b"1", mine) == Held()
        assert await client.hold(PREFIX + "a:1", b"2", other) == Held(other=mine)
        assert entry(etcd) == before
        assert 25 <= await client.time_left(mine) <= 30
        await client.revoke(mine)
        assert await client.time_left(mine) == 0
        assert await client.hold(PREFIX + "a:1", b"2", other) == Held(written=True)
    finally:
        await client.aclose()
