"""Servers in front of stub workers: `solo` and `pair` are shared by all tests, `serve` starts one of its own.

The shared servers are processes with the breaker off and five probes a second, so that a test that breaks a
worker leaves nothing behind; what a test says to the stubs is forgotten after it. A server of a test's own runs
in the test's loop, unless it asks for `process=True`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support import raw
from tests.support.local import LocalServer
from tests.support.server import ServerProcess
from tests.support.stub import StubWorker

CALM = ("--breaker-failure-threshold", "0", "--health-interval", "0.2", "--connect-timeout", "2")


@dataclass
class Setup:
    """A server and its workers, in the order of the replica file."""

    server: Any     # a ServerProcess or a LocalServer
    workers: list[StubWorker]

    @property
    def url(self) -> str:
        return str(self.server.url)

    @property
    def u1(self) -> StubWorker:
        return self.workers[0]

    @property
    def u2(self) -> StubWorker:
        return self.workers[1]

    def runs(self) -> tuple[int, ...]:
        """How often each worker was called."""
        return tuple(len(worker.calls) for worker in self.workers)

    async def ready(self, count: int | None = None) -> None:
        """Wait until `count` workers (all, unless given) are routable."""
        wanted = len(self.workers) if count is None else count
        async with asyncio.timeout(10):
            while (await self.server.health())["replicas_ready"] != wanted:  # noqa: ASYNC110 - no event for us
                await asyncio.sleep(0.05)

    async def pin(self, worker: StubWorker) -> dict[str, str]:
        """Headers of a session that is pinned to `worker`; the calls that this took are forgotten."""
        for _ in range(3 * len(self.workers)):
            headers = {"X-Session-Id": uuid.uuid4().hex}
            response = await raw.post(self.url, headers=headers)
            assert response.status == 200
            if worker.calls:
                break
            self._forget_calls()
        else:
            pytest.fail(f"no session was ever sent to {worker.name}")
        self._forget_calls()
        return headers

    def _forget_calls(self) -> None:
        for worker in self.workers:
            worker.calls.clear()

    async def fresh(self) -> None:
        """Defaults for all workers, nothing open, all routable."""
        for worker in self.workers:
            worker.forget()
        await self.ready()
        await self.server.settled()
        self._forget_calls()


Serve = Callable[..., Awaitable[Setup]]


async def start(stack: AsyncExitStack, folder: Path, count: int, *flags: str, **more: Any) -> Setup:
    """Start `count` workers and a server in front of them; `more` goes to it."""
    kind: Any = ServerProcess if more.pop("process", False) else LocalServer
    hosts = more.pop("hosts", ["127.0.0.1"] * count)
    workers = [await stack.enter_async_context(StubWorker(f"u{n + 1}", host=hosts[n])) for n in range(count)]
    server = await stack.enter_async_context(kind(workers, folder, *flags, **more))
    return Setup(server, workers)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_solo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Setup]:
    async with AsyncExitStack() as stack:
        yield await start(stack, tmp_path_factory.mktemp("solo"), 1, *CALM, process=True)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Setup]:
    async with AsyncExitStack() as stack:
        yield await start(stack, tmp_path_factory.mktemp("pair"), 2, *CALM, process=True)


@pytest_asyncio.fixture(loop_scope="session")
async def solo(shared_solo: Setup) -> AsyncIterator[Setup]:
    """A server with one worker."""
    await shared_solo.fresh()
    yield shared_solo
    await shared_solo.fresh()


@pytest_asyncio.fixture(loop_scope="session")
async def pair(shared_pair: Setup) -> AsyncIterator[Setup]:
    """A server with two workers."""
    await shared_pair.fresh()
    yield shared_pair
    await shared_pair.fresh()


@pytest_asyncio.fixture(loop_scope="session")
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Start a server of the test's own: `await serve(2, "--flag", …)`."""
    async with AsyncExitStack() as stack:
        async def begin(count: int, *flags: str, **more: Any) -> Setup:
            return await start(stack, tmp_path, count, *flags, **more)

        yield begin
