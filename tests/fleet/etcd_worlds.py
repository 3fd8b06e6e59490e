"""A registry that follows a real etcd, and records written by hand."""

from __future__ import annotations

import asyncio
import contextlib
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from typing import Any

from infera_cli.events import Bus, Event, WorkerChanged
from infera_cli.fleet.backoff import Backoff
from infera_cli.fleet.enrolled import Enrolled
from infera_cli.fleet.etcd_access import EtcdAccess
from infera_cli.fleet.etcd_client import EtcdClient
from infera_cli.fleet.member import Member
from infera_cli.fleet.registry import Registry
from infera_cli.fleet.sources.etcd import SOURCE, EtcdSource
from infera_cli.routing.sessions import Pins
from tests.support.etcd import Etcd

PREFIX = "/infera/workers/"


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


def record(name: str, **members: Any) -> dict[str, Any]:
    return {"worker_id": name, "url": f"http://{name}:8001", "model_name": "m", "engine": "vllm", **members}


def put(etcd: Etcd, name: str, *, lease: int | None = None, raw: str | None = None, **members: Any) -> None:
    body: dict[str, object] = {"key": b64(PREFIX + name), "value": b64(raw or json.dumps(record(name, **members)))}
    etcd.call("kv/put", body if lease is None else {**body, "lease": str(lease)})


def delete(etcd: Etcd, name: str) -> None:
    etcd.call("kv/deleterange", {"key": b64(PREFIX + name)})


def compact(etcd: Etcd) -> None:
    header = etcd.call("kv/range", {"key": b64("/")})["header"]
    assert isinstance(header, dict)
    etcd.call("kv/compaction", {"revision": header["revision"], "physical": True})


async def eventually(holds: Callable[[], bool], within: float = 10.0) -> None:
    async with asyncio.timeout(within):
        while not holds():  # noqa: ASYNC110 - nobody else tells
            await asyncio.sleep(0.01)


class Follower:
    """One router's view."""

    def __init__(self, *urls: str, **options: Any) -> None:
        self.events: list[WorkerChanged] = []
        self.left: list[Member] = []
        bus = self.bus = Bus()
        bus.subscribe(self._note)
        self.registry = Registry(bus, pins=Pins(600.0))
        self.enrolled = Enrolled(self.registry, bus, source=SOURCE, left=self.left.append)
        access = {name: options.pop(name) for name in EtcdAccess.__slots__ if name in options}
        self.client = EtcdClient(EtcdAccess(**{"endpoints": urls, "timeout": 2.0, **access}))
        settings = {"pulse": 0.3, "rhythm": Backoff(0.05, 0.2), **options}
        self.source = EtcdSource(self.client, self.enrolled, prefix=PREFIX, **settings)

    def _note(self, event: Event) -> None:
        if isinstance(event, WorkerChanged):
            self.events.append(event)

    def names(self) -> list[str]:
        return sorted(member.id for member in self.registry.members())

    def told(self, what: str) -> list[str]:
        return [event.worker for event in self.events if event.what == what]

    async def sees(self, *names: str, within: float = 10.0) -> None:
        await eventually(lambda: self.names() == sorted(names) and not self.source.stale, within)

    async def is_stale(self) -> None:
        await eventually(lambda: self.source.stale)


@contextlib.asynccontextmanager
async def following(*urls: str, **options: Any) -> AsyncIterator[Follower]:
    follower = Follower(*urls, **options)
    task = asyncio.ensure_future(follower.source.run())
    try:
        yield follower
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await follower.client.aclose()
