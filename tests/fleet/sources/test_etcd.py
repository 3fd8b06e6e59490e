"""Following a real etcd: infera-wire §1.4, its defects mended (C1, C2, C4, C8, S4, S110; R122, R125; rulings 23)."""

from __future__ import annotations

import asyncio
import logging
import signal

import pytest

from infera_cli.blocks import chain
from infera_cli.config.serve import load_serve
from infera_cli.errors import DiscoveryError
from infera_cli.events import WorkerChanged
from infera_cli.wiring.cache import CacheAware
from tests.fleet.etcd_worlds import PREFIX, compact, delete, eventually, following, put
from tests.support.etcd import Etcd, free_port


async def test_workers_come_change_and_go_with_their_keys(etcd: Etcd) -> None:
    """What is there at the start, what is written later, and what is deleted: each is seen."""
    put(etcd, "a")
    async with following(etcd.url) as router:
        await router.sees("a")
        put(etcd, "b", disagg_mode="prefill", infera_engine="sim")
        await router.sees("a", "b")
        member = router.registry.member("b")
        assert member is not None
        assert (member.spec.url, member.spec.role, member.spec.engine) == ("http://b:8001", "prefill", "sim")
        delete(etcd, "a")
        await router.sees("b")
        assert [gone.id for gone in router.left] == ["a"]


async def test_the_end_of_a_lease_removes_its_worker(etcd: Etcd) -> None:
    """A worker that died without a word goes when its lease ends."""
    lease = int(str(etcd.call("lease/grant", {"TTL": 1})["ID"]))
    put(etcd, "a", lease=lease)
    async with following(etcd.url) as router:
        await router.sees("a")
        await router.sees()


async def test_s4_a_removal_is_announced_exactly_once(etcd: Etcd) -> None:
    """Draining first and deleted then: one `removed`."""
    put(etcd, "a")
    async with following(etcd.url) as router:
        await router.sees("a")
        put(etcd, "a", status="draining")
        await eventually(lambda: router.told("draining") == ["a"])
        assert router.names() == ["a"]
        delete(etcd, "a")
        await router.sees()
        assert router.told("removed") == ["a"]
        assert len(router.left) == 1


async def test_a_draining_record_takes_no_new_work_until_it_is_active_again(etcd: Etcd) -> None:
    """Only `active` is routable; the worker stays listed."""
    put(etcd, "a", status="dead")
    async with following(etcd.url) as router:
        await router.sees("a")
        member = router.registry.member("a")
        assert member is not None
        assert not member.available
        put(etcd, "a")
        await eventually(lambda: member.available)


async def test_c8_s110_a_changed_record_is_told(etcd: Etcd) -> None:
    """Another address, model or event endpoint makes it a new member; anything else is told of the same one."""
    put(etcd, "a", kv_events_endpoint="tcp://a:5557")
    async with following(etcd.url) as router:
        await router.sees("a")
        first = router.registry.member("a")
        meta = {"protocol": "sglang-bootstrap", "params": {"bootstrap_addr": "a:8998"}}
        put(etcd, "a", kv_events_endpoint="tcp://a:5557", disagg_meta=meta)
        await eventually(lambda: router.told("record") == ["a"])
        assert router.enrolled.records["a"].disagg_meta == meta
        assert router.registry.member("a") is first
        put(etcd, "a", kv_events_endpoint="tcp://a:5558")
        await eventually(lambda: router.told("removed") == ["a"])
        second = router.registry.member("a")
        assert second is not None
        assert second.spec.kv_events_endpoint == "tcp://a:5558"
        assert router.left == [first]


@pytest.mark.parametrize("gap", [True, False])
async def test_r127_an_address_used_again_by_another_model_is_a_new_worker(etcd: Etcd, gap: bool) -> None:
    """It serves its own model only, and nothing of the former one's cache is believed of it."""
    tokens, size = list(range(64)), 16
    put(etcd, "a", model_name="old", kv_block_size=size)
    async with following(etcd.url) as router:
        cache = CacheAware(load_serve({"sim": "1", "router_policy": "kv-aware"}, {}).settings, router.registry)
        router.bus.subscribe(cache.on_event, WorkerChanged)
        await router.sees("a")
        former = router.registry.member("a")
        assert former is not None
        (slot,) = cache.slots(former.worker, None)
        cache.index.store(slot, None, chain(tokens, size), tokens, size)
        assert cache.blocks_of("a", None) == 4
        if gap:
            delete(etcd, "a")
        put(etcd, "a", model_name="new", kv_block_size=size)
        await eventually(lambda: router.told("added") == ["a", "a"])
        member = router.registry.member("a")
        assert member is not None
        assert (member.may_serve("new"), member.may_serve("old")) == (True, False)
        assert cache.blocks_of("a", None) == len(cache.index) == 0
        assert cache.index.depths(chain(tokens, size), -1) == []
        assert router.left == [former]


async def test_the_key_is_the_identity(etcd: Etcd) -> None:
    """A record whose `worker_id` says something else is known, and removed, by its key."""
    put(etcd, "a", worker_id="z")
    async with following(etcd.url) as router:
        await router.sees("a")
        delete(etcd, "a")
        await router.sees()


async def test_a_bad_record_is_refused_with_one_line(etcd: Etcd, caplog: pytest.LogCaptureFixture) -> None:
    """Others are not harmed, a former good record stays in force, and reading it again says nothing new."""
    put(etcd, "a")
    put(etcd, "bad", raw="{half")
    with caplog.at_level(logging.WARNING):
        async with following(etcd.url) as router:
            await router.sees("a")
            put(etcd, "a", raw='{"worker_id":')
            put(etcd, "b")
            await router.sees("a", "b")
            etcd.kill()
            etcd.start()
            await router.sees("a", "b")
            assert router.enrolled.refused == 2
    lines = [line for line in caplog.messages if "refused" in line]
    assert lines == [
        "the record of worker bad in etcd is not JSON; it is refused",
        "the record of worker a in etcd is not JSON; it is refused; its former record stays in force",
    ]


async def test_a_second_worker_of_one_url_is_told_and_counted(etcd: Etcd) -> None:
    """Who came first serves; the other is refused once, and reading all again says nothing new."""
    put(etcd, "a", url="http://same:8001")
    async with following(etcd.url) as router:
        await router.sees("a")
        put(etcd, "b", url="http://same:8001")
        await eventually(lambda: router.told("ignored") == ["b"])
        etcd.kill()
        await router.is_stale()
        etcd.start()
        await router.sees("a")
        assert (router.enrolled.refused, router.told("ignored")) == (1, ["b"])


async def test_keys_without_a_name_are_ignored(etcd: Etcd) -> None:
    """The prefix itself, or a key with spaces, is nobody, is counted once, and does not look like a change that was
    missed."""
    put(etcd, "")
    put(etcd, "a b")
    put(etcd, "a")
    async with following(etcd.url, pulse=0.05) as router:
        await router.sees("a")
        put(etcd, "b")
        await router.sees("a", "b")
        await asyncio.sleep(0.3)
        assert router.source.reconnects == 0
        assert router.enrolled.refused == 2
        put(etcd, "c d")
        put(etcd, "e")
        await router.sees("a", "b", "e")
        assert router.enrolled.refused == 3
        put(etcd, "c d", url="http://other:1")
        put(etcd, "f")
        await router.sees("a", "b", "e", "f")
        assert router.enrolled.refused == 3, "told once"


# ── etcd goes away ───────────────────────────────────────────────────────────────────────────────────
async def test_r122_without_etcd_the_last_view_serves(etcd: Etcd) -> None:
    """Killed and started again: nobody leaves, nobody is doubled, and meanwhile the view says it is stale."""
    for name in "abc":
        put(etcd, name)
    async with following(etcd.url) as router:
        await router.sees(*"abc")
        etcd.kill()
        await router.is_stale()
        assert "etcd" in str(router.source.error)
        assert router.names() == ["a", "b", "c"]
        etcd.start()
        await router.sees(*"abc")
        assert router.source.error is None
        assert router.told("added") == ["a", "b", "c"]
        assert router.told("removed") == []


async def test_c4_etcd_may_be_down_at_the_start(etcd: Etcd) -> None:
    """It is asked for until it comes."""
    put(etcd, "a")
    etcd.kill()
    async with following(etcd.url) as router:
        await router.is_stale()
        etcd.start()
        await router.sees("a")


async def test_c2_a_change_between_the_first_look_and_the_watch_is_seen(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker went and one came after all was read and before the watch stood: the watch begins where that ended."""
    put(etcd, "a")
    put(etcd, "b")
    async with following(etcd.url, pulse=3600.0) as router:
        read, watch = router.client.range, router.client.watch
        changed = asyncio.Event()

        async def read_then_change(prefix: str) -> object:
            snapshot = await read(prefix)
            if not changed.is_set():
                delete(etcd, "a")
                put(etcd, "c")
                changed.set()
            return snapshot

        def watch_after_it(prefix: str, revision: int) -> object:
            assert changed.is_set()
            return watch(prefix, revision)

        monkeypatch.setattr(router.client, "range", read_then_change)
        monkeypatch.setattr(router.client, "watch", watch_after_it)
        await router.sees("b", "c")
        assert router.source.reconnects == 0


async def test_c1_c2_changes_while_disconnected_are_seen_afterwards(etcd: Etcd) -> None:
    """After each reconnect the view is read whole: one worker went, one came."""
    put(etcd, "a")
    put(etcd, "b")
    async with following(etcd.url) as router:
        await router.sees("a", "b")
        etcd.kill()
        await router.is_stale()
        etcd.start()
        delete(etcd, "a")
        put(etcd, "c")
        await router.sees("b", "c")


async def test_r125_a_compacted_history_is_no_trap(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch from a revision that was compacted away is cancelled; within 2 s the view is whole and right."""
    for name in ("w1", "w2", "w3"):
        put(etcd, name)
    async with following(etcd.url) as router:
        await router.sees("w1", "w2", "w3")
        read = router.client.range

        async def read_then_fall_behind(prefix: str) -> object:
            snapshot = await read(prefix)
            if router.names() == ["w1", "w2", "w3"]:
                delete(etcd, "w1")
                put(etcd, "w4")
                compact(etcd)
            return snapshot

        monkeypatch.setattr(router.client, "range", read_then_fall_behind)
        etcd.kill()
        etcd.start()
        await router.sees("w2", "w3", "w4", within=2 + 3)
        assert [gone.id for gone in router.left] == ["w1"]


async def test_a_frozen_etcd_is_noticed(etcd: Etcd) -> None:
    """A connection that says nothing any more, without being closed, makes the view stale."""
    put(etcd, "a")
    async with following(etcd.url, timeout=0.5) as router:
        await router.sees("a")
        etcd.signal(signal.SIGSTOP)
        await router.is_stale()
        assert router.names() == ["a"]
        etcd.signal(signal.SIGCONT)
        await router.sees("a")


async def test_a_watch_that_misses_changes_is_noticed(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a quiet watch did not tell is found by asking beside it."""
    async with following(etcd.url, pulse=0.1) as router:
        await router.sees()
        with monkeypatch.context() as deaf:
            deaf.setattr(router.source, "_apply", lambda _pair: None)
            put(etcd, "a")
            await router.sees("a")


async def test_other_endpoints_are_tried(etcd: Etcd) -> None:
    """One that refuses connections is passed over."""
    put(etcd, "a")
    async with following(f"http://127.0.0.1:{free_port()}", etcd.url) as router:
        await router.sees("a")
        put(etcd, "b")
        await router.sees("a", "b")


# ── etcd comes back empty (rulings 23) ───────────────────────────────────────────────────────────────
async def test_a_wiped_etcd_is_believed_after_one_lease_time(etcd: Etcd) -> None:
    """Who enrols again stays without a break; who does not goes when the time is over, and not before."""
    for name in "abc":
        put(etcd, name)
    async with following(etcd.url, lease_time=1.5) as router:
        await router.sees(*"abc")
        etcd.kill()
        etcd.wipe()
        etcd.start()
        await router.is_stale()
        await router.sees(*"abc")
        put(etcd, "a")
        put(etcd, "d")
        await router.sees(*"abcd")
        await router.sees("a", "d")
        assert router.told("added") == ["a", "b", "c", "d"]


async def test_other_reconnects_do_not_shorten_the_time(etcd: Etcd) -> None:
    """While workers of a lost memory are kept, a further break changes nothing about them."""
    put(etcd, "a")
    async with following(etcd.url, lease_time=60) as router:
        await router.sees("a")
        etcd.kill()
        etcd.wipe()
        for _ in range(2):
            etcd.start()
            await router.sees("a")
            etcd.kill()
            await router.is_stale()
        etcd.start()
        await router.sees("a")
        put(etcd, "a")
        delete(etcd, "a")
        await router.sees()


async def test_several_routers_share_one_view(etcd: Etcd) -> None:
    """Whatever happens, all see the same workers in the end; one that comes later too."""
    put(etcd, "a")
    async with following(etcd.url) as left, following(etcd.url) as right:
        put(etcd, "b")
        delete(etcd, "a")
        put(etcd, "c")
        async with following(etcd.url) as late:
            for router in (left, right, late):
                await router.sees("b", "c")
            etcd.kill()
            etcd.start()
            put(etcd, "d")
            for router in (left, right, late):
                await router.sees("b", "c", "d")


async def test_the_first_look_says_what_went_wrong() -> None:
    """A start that wants to know at once is told, and the view is stale."""
    async with following(f"http://127.0.0.1:{free_port()}") as router:
        with pytest.raises(DiscoveryError, match="cannot be reached"):
            await router.source.first_look()
        assert router.source.stale
        assert PREFIX not in (router.source.error or "")
