"""Servers behind a scheduler file, in front of stub workers called `n1`, `n2`, …"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest_asyncio

from infera_cli.config.serve import load_serve
from infera_cli.gateway.scheduling import Scheduling
from infera_cli.routing.nodes import Node
from infera_cli.wiring.scheduler import Scheduler
from tests.support import raw
from tests.support.local import Captured, LocalServer, _typed
from tests.support.stub import Seen, StubWorker

KEY = "open-sesame"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


class ConfigServer(LocalServer):
    """`infera serve --config FILE` in this loop; `more` are blocks of the file, `nodes` keys by node id."""

    def __init__(self, workers: Sequence[StubWorker], folder: Path, *flags: str, env: Mapping[str, str] | None = None,
                 nodes: Mapping[str, Mapping[str, Any]] | None = None, **blocks: Any) -> None:  # fmt: skip
        self.file = folder / "scheduler.yaml"
        self.workers = workers
        self.say(nodes, **blocks)
        typed = {"config": str(self.file), "host": "127.0.0.1", "port": "0", **_typed(flags)}
        self._server = Captured(load_serve(typed, env if env is not None else {"INFERACT_ADMIN_KEY": KEY}).settings)
        self.url = self._server.url
        self._task: asyncio.Task[None] | None = None

    def say(self, nodes: Mapping[str, Mapping[str, Any]] | None = None, **blocks: Any) -> None:
        """Write the file; a node whose keys are None is left out."""
        more = nodes or {}
        listed = [
            {"id": worker.name, "hardware": "a100-80g", "backend": "vllm", "models": ["m"],
             "endpoint": f"http://{worker.address}", **more.get(worker.name, {})}
            for worker in self.workers
        ]
        self.file.write_text(json.dumps({"nodes": [one for one in listed if one["id"] is not None], **blocks}))

    @property
    def scheduler(self) -> Scheduler:
        assert self._server.scheduler is not None
        return self._server.scheduler

    @property
    def scheduling(self) -> Scheduling:
        assert self.scheduler.scheduling is not None
        return self.scheduler.scheduling

    def node(self, name: str) -> Node:
        member = self._server.registry.member(name)
        assert member is not None
        return self.scheduler.nodes.of(member.worker)

    async def status(self, name: str | None = None) -> dict[str, Any]:
        """The body of /status, or the entry of one node."""
        body: dict[str, Any] = (await raw.get(self.url, "/status")).json()
        return body if name is None else next(node for node in body["nodes"] if node["id"] == name)

    async def admin(self, name: str, act: str, key: str | None = KEY) -> raw.Response:
        headers = {} if key is None else {"X-Inferact-Admin-Key": key}
        return await raw.post(self.url, f"/admin/nodes/{name}/{act}", b"", headers)

    async def chat(self, priority: int | None = None, **members: Any) -> raw.Response:
        """One request; `priority`, `node_affinity` and `kv_prefix_hint` go into x-inferact."""
        named = [key for key in ("node_affinity", "kv_prefix_hint") if key in members]
        wishes: dict[str, Any] = {key: members.pop(key) for key in named}
        if priority is not None:
            wishes["priority"] = priority
        body = {**CHAT, **members, **({"x-inferact": wishes} if wishes else {})}
        return await raw.post(self.url, raw.CHAT, body)


class Scheduled:
    """A server and its workers."""

    def __init__(self, server: ConfigServer, workers: list[StubWorker]) -> None:
        self.server = server
        self.workers = workers
        self.n1, self.n2 = workers[0], workers[-1]

    @property
    def served(self) -> dict[str, int]:
        """Requests that each worker got."""
        return {worker.name: len(worker.calls) for worker in self.workers}

    async def waiting(self, count: int) -> None:
        """Until so many wait in the queue."""
        async with asyncio.timeout(5):
            while len(self.server.scheduler.queue) != count:  # noqa: ASYNC110 - the queue has no event
                await asyncio.sleep(0.005)

    async def busy(self, count: int) -> None:
        """Until so many requests are at the workers."""
        async with asyncio.timeout(5):
            while sum(worker.open for worker in self.workers) != count:  # noqa: ASYNC110 - no event for us
                await asyncio.sleep(0.005)


Schedule = Callable[..., Awaitable[Scheduled]]


@pytest_asyncio.fixture(loop_scope="session")
async def schedule(tmp_path: Path) -> AsyncIterator[Schedule]:
    """Start workers and a server: `await schedule(2, "--flag", …, batching={…})`."""
    async with AsyncExitStack() as stack:
        async def begin(count: int, *flags: str, **more: Any) -> Scheduled:
            workers = [await stack.enter_async_context(StubWorker(f"n{at + 1}")) for at in range(count)]
            server = await stack.enter_async_context(ConfigServer(workers, tmp_path, *flags, **more))
            return Scheduled(server, workers)

        yield begin


def sent_body(seen: Seen) -> Any:
    """What a worker was told, as JSON."""
    return json.loads(seen.body)
