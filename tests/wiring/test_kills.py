"""`kill -9` of etcd, of a worker, of one of two routers, while requests are under way: nothing is lost that had not
begun to answer, and nothing at all for a client that tries again (R122, R110; design.md §3)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from infera_cli.launch.sim import SimEngines
from tests.e2e.processes import Process, free_port
from tests.fleet.etcd_worlds import put
from tests.support.etcd import Etcd
from tests.tokens import models

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKENS, CLIENTS = 20, 6
OPTIONS = {"itl-ms": 10}


class Router(Process):
    """`infera serve` on etcd, weighing caches."""

    def __init__(self, etcd: Etcd, folder: Path, tokenizer: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [
            str(Path(sys.executable).with_name("infera")), "serve", "--discovery-backend", "etcd",
            "--etcd-endpoint", etcd.address, "--router-tokenizer-path", str(tokenizer),
            "--host", "127.0.0.1", "--port", str(self.port),
        ]  # fmt: skip
        super().__init__(f"router-{self.port}", command, folder / f"router-{self.port}.log", {})

    async def sees(self, http: httpx.AsyncClient, count: int) -> None:
        """Wait until it may send to so many."""
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    if (await http.get(f"{self.url}/health")).json()["replicas_ready"] == count:
                        return
                await asyncio.sleep(0.05)


@dataclass
class Seen:
    """How requests ended."""

    whole: int = 0
    broken_off: int = 0
    lost: list[str] = field(default_factory=list)


class Load:
    """Clients that ask in turn for streams and for whole answers, of conversations of their own, until told to stop.

    A client `tries` all routers in turn before it gives a request up for lost.
    """

    def __init__(self, http: httpx.AsyncClient, routers: list[Router], tries: int = 1) -> None:
        self._http, self._routers, self._tries = http, routers, tries
        self._over = False
        self.seen = Seen()
        self._clients = [asyncio.ensure_future(self._client(number)) for number in range(CLIENTS)]

    async def reaches(self, whole: int) -> None:
        """Wait until so many requests were answered."""
        async with asyncio.timeout(60):
            while self.seen.whole < whole:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def stop(self) -> Seen:
        """No more; what was asked is waited for."""
        self._over = True
        await asyncio.gather(*self._clients)
        return self.seen

    async def _client(self, number: int) -> None:
        turn = 0
        while not self._over:
            turn += 1
            why = ""
            for attempt in range(self._tries):
                router = self._routers[(number + attempt) % len(self._routers)]
                why = await self._ask(router, f"{number} " * 40, bool(turn % 2))
                if not why:
                    break
            if not why:
                self.seen.whole += 1
            elif why == "broken off":
                self.seen.broken_off += 1
            else:
                self.seen.lost.append(why)

    async def _ask(self, router: Router, text: str, stream: bool) -> str:
        """Why it failed; empty when all of the answer came."""
        body = {
            "model": "sim", "messages": [{"role": "user", "content": text}], "max_tokens": TOKENS,
            "ignore_eos": True, "stream": stream,
        }  # fmt: skip
        began = False
        try:
            async with self._http.stream("POST", f"{router.url}/v1/chat/completions", json=body) as reply:
                if reply.status_code != 200:
                    return f"status {reply.status_code}"
                whole = b""
                async for piece in reply.aiter_bytes():
                    began = True
                    whole += piece
        except httpx.HTTPError as error:
            return "broken off" if began and stream else f"{type(error).__name__} {error}"
        return "" if b"[DONE]" in whole or not stream else "broken off"


@dataclass
class World:
    """Three engines, two routers, one registry, and a client."""

    etcd: Etcd
    pids: dict[str, int]
    routers: list[Router]
    http: httpx.AsyncClient


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("kills")
    etcd = Etcd(folder)
    etcd.start()
    routers = [Router(etcd, folder, models.write(folder / "model")) for _ in range(2)]
    limits = httpx.Limits(max_keepalive_connections=0)
    async with SimEngines() as engines, httpx.AsyncClient(timeout=60, limits=limits) as http:
        try:
            for router in routers:
                router.start()
            for engine in await engines.start(3, options=OPTIONS):
                put(etcd, engine.name, url=engine.url, model_name="sim", kv_block_size=16)
            for router in routers:
                await router.sees(http, 3)
            yield World(etcd, engines.pids, routers, http)
        finally:
            for router in routers:
                router.stop()
            etcd.stop()


async def test_r122_killing_etcd_under_load_loses_nothing(world: World) -> None:
    """All requests before, during and after its absence are answered whole."""
    load = Load(world.http, world.routers)
    await load.reaches(10)
    world.etcd.kill()
    await load.reaches(40)
    world.etcd.start()
    await load.reaches(60)
    seen = await load.stop()
    assert (seen.lost, seen.broken_off) == ([], 0)


async def test_killing_a_worker_under_load_loses_nothing_that_had_not_begun(world: World) -> None:
    """Streams that it had begun break off and say so; all other requests are answered by the others."""
    load = Load(world.http, world.routers)
    await load.reaches(15)
    os.kill(world.pids["sim1"], signal.SIGKILL)
    await load.reaches(60)
    seen = await load.stop()
    assert seen.lost == []
    assert seen.broken_off <= CLIENTS


async def test_killing_one_of_two_routers_loses_nothing_for_clients_that_try_again(world: World) -> None:
    """Whatever it was doing, the other one answers it."""
    load = Load(world.http, world.routers, tries=2)
    await load.reaches(15)
    world.routers[0].kill()
    await load.reaches(60)
    seen = await load.stop()
    assert (seen.lost, seen.broken_off) == ([], 0)
