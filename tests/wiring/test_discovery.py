"""A server whose workers register in a real etcd (rulings 3, 4, 23; R110, R122, S104)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from infera_cli.config.serve import load_serve
from infera_cli.errors import DiscoveryRefused
from infera_cli.launch.sim import SimEngine, SimEngines
from tests.fleet.etcd_worlds import delete, put
from tests.support.etcd import Etcd
from tests.support.local import Captured, LocalServer

ASK = {"model": "sim", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


class Discovering(LocalServer):
    """`infera serve --etcd-endpoint …` in this loop."""

    def __init__(self, endpoint: str, folder: Path, **flags: str) -> None:
        self.file = folder / "none.json"
        typed: dict[str, Any] = {"etcd_endpoint": [endpoint], "host": "127.0.0.1", "port": "0",
                                 "router_policy": "session", **flags}  # fmt: skip
        self._server = Captured(load_serve(typed, {}).settings)
        self.url = self._server.url
        self._task = None

    def close(self) -> None:
        """What the program does however it ends."""
        self._server.close()

    async def sees(self, count: int) -> None:
        """Wait until that many workers are listed, from an etcd in sight."""
        await self.says(lambda body: body["replicas_total"] == count and not body["stale"])

    async def says(self, holds: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until the body of /health is so."""
        async with asyncio.timeout(10):
            while not holds(await self.health()):  # noqa: ASYNC110 - a server has no event for its clients
                await asyncio.sleep(0.02)


@asynccontextmanager
async def engines(count: int, **options: object) -> AsyncIterator[tuple[SimEngines, list[SimEngine]]]:
    async with SimEngines() as running:
        yield running, await running.start(count, options={name.replace("_", "-"): v for name, v in options.items()})


def enrol(server: Etcd, engine: SimEngine, **members: Any) -> None:
    put(server, engine.name, url=engine.url, model_name="sim", **members)


async def ask(http: httpx.AsyncClient, router: Discovering, **members: Any) -> httpx.Response:
    return await http.post(f"{router.url}/v1/chat/completions", json={**ASK, **members}, timeout=20)


async def test_health_stays_200_without_etcd_and_says_so(etcd: Etcd, tmp_path: Path) -> None:
    """No worker, or no etcd: 200; `stale` in the body, 1 in the metrics."""
    async with Discovering(etcd.address, tmp_path) as router:
        body = await router.health()
        assert (body["status"], body["active_workers"], body["stale"]) == ("ok", 0, False)
        etcd.kill()
        await router.says(lambda body: body["stale"])
        body = await router.health()
        assert body["sources"] == [{"name": "etcd", "stale": True}]
        assert (await router.metrics())['infera_source_stale{source="etcd"}'] == 1.0


async def test_a_server_starts_without_etcd(etcd: Etcd, tmp_path: Path) -> None:
    """And finds the workers when etcd comes."""
    etcd.stop()
    async with Discovering(etcd.address, tmp_path) as router:
        assert (await router.health())["stale"] is True
        etcd.start()
        put(etcd, "a")
        await router.sees(1)


async def test_s104_refused_credentials_end_the_start(etcd: Etcd, tmp_path: Path) -> None:
    """Waiting would not help, so the program stops with one sentence."""
    etcd.call("auth/user/add", {"name": "root", "password": "pw"})
    etcd.call("auth/user/grant", {"user": "root", "role": "root"})
    etcd.call("auth/enable", {})
    router = Discovering(etcd.address, tmp_path, etcd_user="root", etcd_password="wrong")
    with pytest.raises(DiscoveryRefused, match="authentication failed"):
        await router.__aenter__()
    router.close()


async def test_workers_shows_what_a_record_says(etcd: Etcd, tmp_path: Path) -> None:
    """The members of infera-wire §3.2, as registered."""
    meta = {"protocol": "sglang-bootstrap", "params": {}}
    kv: dict[str, Any] = {"kv_events_endpoint": "tcp://a:5557", "kv_block_size": 16, "dp_size": 2}
    put(etcd, "a", disagg_mode="decode", disagg_meta=meta, **kv)
    async with Discovering(etcd.address, tmp_path) as router, httpx.AsyncClient() as http:
        [row] = (await http.get(f"{router.url}/v1/workers")).json()["workers"]
        said = {name: row[name] for name in ("worker_id", "url", "model_name", "engine", "status", "disagg_mode")}
        assert said == {"worker_id": "a", "url": "http://a:8001", "model_name": "m", "engine": "vllm",
                        "status": "active", "disagg_mode": "decode"}  # fmt: skip
        assert (row["disagg_meta"], row["kv_events_endpoint"]) == (meta, "tcp://a:5557")
        assert (row["kv_block_size"], row["dp_rank"], row["dp_size"]) == (16, None, 2)


async def test_r122_requests_go_on_while_etcd_is_away(etcd: Etcd, tmp_path: Path) -> None:
    """Killed under traffic and back again: every request is answered, nobody is listed twice."""
    async with engines(2, time_scale=50) as (_, found), httpx.AsyncClient() as http:
        for engine in found:
            enrol(etcd, engine)
        async with Discovering(etcd.address, tmp_path) as router:
            statuses = [(await ask(http, router)).status_code for _ in range(5)]
            etcd.kill()
            statuses += [(await ask(http, router)).status_code for _ in range(20)]
            etcd.start()
            await router.sees(2)
            statuses += [(await ask(http, router)).status_code for _ in range(5)]
            assert statuses == [200] * 30


@pytest.mark.parametrize("stream", [False, True])
async def test_r110_requests_that_wait_on_a_vanished_worker_move_on(
    etcd: Etcd, tmp_path: Path, stream: bool
) -> None:
    """Its process is frozen and its lease ends: within 5 s what it never began to answer is answered elsewhere."""
    async with engines(2, time_scale=50) as (running, found), httpx.AsyncClient() as http:
        for engine in found:
            enrol(etcd, engine)
        flags = {"router_policy": "round-robin", "health_interval": "60"}
        async with Discovering(etcd.address, tmp_path, **flags) as router:
            os.kill(running.pids["sim0"], signal.SIGSTOP)
            asked = [asyncio.ensure_future(ask(http, router, stream=stream)) for _ in range(2)]
            done, [stuck] = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            assert [task.result().headers["x-infera-worker"] for task in done] == ["sim1"]
            delete(etcd, "sim0")
            reply = await asyncio.wait_for(stuck, 5)
            assert (reply.status_code, reply.headers["x-infera-worker"]) == (200, "sim1")
            os.kill(running.pids["sim0"], signal.SIGCONT)


async def test_a_worker_that_withdraws_in_order_finishes_what_it_has(etcd: Etcd, tmp_path: Path) -> None:
    """It still answers probes, so its unanswered requests stay with it; new ones go elsewhere."""
    async with engines(2, itl_ms=20) as (_, found), httpx.AsyncClient() as http:
        enrol(etcd, found[0])
        async with Discovering(etcd.address, tmp_path) as router:
            slow = asyncio.ensure_future(ask(http, router, max_tokens=100, ignore_eos=True))
            await router.says(lambda body: body["replicas"][0]["outstanding"] == 1)
            enrol(etcd, found[1])
            delete(etcd, "sim0")
            await router.sees(1)
            assert (await ask(http, router)).headers["x-infera-worker"] == "sim1"
            reply = await slow
            assert (reply.status_code, reply.headers["x-infera-worker"]) == (200, "sim0")


async def test_two_servers_share_one_view(etcd: Etcd, tmp_path: Path) -> None:
    """Any number of servers on one etcd list the same workers in the same order."""
    for name in "cab":
        put(etcd, name)
    async with Discovering(etcd.address, tmp_path) as left, Discovering(etcd.address, tmp_path) as right:
        names = [[row["name"] for row in (await router.health())["replicas"]] for router in (left, right)]
        assert names == [["a", "b", "c"]] * 2
        delete(etcd, "b")
        put(etcd, "d")
        for router in (left, right):
            await router.sees(3)
