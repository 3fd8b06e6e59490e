"""A feed over a registry and an index, and publishers for it: simulated engines, and one that says what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import zmq

from infera_cli.blocks import chain
from infera_cli.events import Bus
from infera_cli.fleet.kv_feed.feed import KvFeed
from infera_cli.fleet.kv_feed.intake import Intake
from infera_cli.fleet.registry import Registry
from infera_cli.routing.prefix import PrefixIndex, Slot
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import Worker, WorkerSpec
from infera_cli.simengine.kv_events import KvEvents, KvEventsConfig
from infera_cli.simulator.cache import Removed, Stored

SIZE = 16


class Publisher:
    """A simulated engine's events; `prompt` announces the blocks of one prompt."""

    made: ClassVar[list[Publisher]] = []

    def __init__(self, endpoint: str = "tcp://127.0.0.1:0", *, replay: bool = True, steps: int = 1000,
                 form: str = "map", hashes: str = "int", at: dict[str, str] | None = None) -> None:
        known = at or {}
        config = KvEventsConfig(
            endpoint=known.get("endpoint", endpoint), buffer_steps=steps, form=form, hashes=hashes,
            replay_endpoint=known.get("replay_endpoint", "tcp://127.0.0.1:0") if replay else None,
        )
        self.events = KvEvents(config, SIZE)
        self.address: dict[str, str] = self.events.sources()["0"]
        self.made.append(self)

    def close(self) -> None:
        if self in self.made:
            self.made.remove(self)
            self.events.close()

    def prompt(self, tokens: Sequence[int]) -> None:
        hashes = chain(tokens, SIZE)
        self.events.submitted("s", tokens, "")
        self.events.publish([Stored(tuple(hashes), None, "s", 0)])

    def remove(self, tokens: Sequence[int]) -> None:
        self.events.publish([Removed(hash_) for hash_ in reversed(chain(tokens, SIZE))])


class Noise:
    """A publisher that says whatever it is told, once somebody listens; nothing can be had again from it."""

    def __init__(self, endpoint: str = "tcp://127.0.0.1:*") -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.bind(endpoint)
        where = self._socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(where, bytes)
        self.endpoint = where.decode().rstrip("\0")
        self._number = 0

    async def heard(self) -> None:
        async with asyncio.timeout(10):
            while not self._socket.poll(0):  # noqa: ASYNC110 - its own thread subscribes
                await asyncio.sleep(0.005)

    def say(self, *frames: bytes) -> None:
        self._socket.send_multipart(frames)

    def payload(self, payload: bytes) -> None:
        """The next batch, whatever is in it."""
        self.say(b"kv-events", self._number.to_bytes(8, "big"), payload)
        self._number += 1

    def batch(self, *events: Any, ts: Any = 0.0) -> None:
        self.payload(msgspec.msgpack.encode([ts, list(events), 0]))

    def close(self) -> None:
        self._context.destroy(linger=0)


def stored(tokens: Sequence[int], **more: Any) -> dict[str, Any]:
    """An event: these tokens in blocks of their own."""
    hashes = chain(tokens, SIZE)
    return {"type": "BlockStored", "block_hashes": list(hashes), "parent_block_hash": None, "token_ids": list(tokens),
            "block_size": SIZE, "medium": "GPU", **more}  # fmt: skip


class Reply:
    def __init__(self, body: bytes, status: int = 200) -> None:
        self.body, self.status = body, status


class World:
    """A registry, an index and the feed between; `answers` are what workers say to GET."""

    def __init__(self) -> None:
        self.bus = Bus()
        self.registry = Registry(self.bus, pins=Pins(600))
        self.index = PrefixIndex()
        self.by_worker: dict[Worker, list[Slot]] = {}
        self.answers: dict[tuple[str, str], bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.feed = KvFeed(self.registry, self._fetch, Intake(self.index), self._slots)
        self.bus.subscribe(self.feed.on_event)

    async def _fetch(self, spec: WorkerSpec, path: str, *, timeout: float) -> Reply:  # noqa: ASYNC109
        self.asked.append((spec.id, path))
        body = self.answers.get((spec.id, path))
        return Reply(body, 200) if body is not None else Reply(b"", 404)

    def _slots(self, worker: Worker, count: int | None) -> list[Slot]:
        slots = self.by_worker.setdefault(worker, [])
        while len(slots) < max(1, worker.spec.ranks, count or 1):
            slots.append(self.index.open(f"{worker.id}#dp{len(slots)}" if len(slots) else worker.id))
        return slots

    def add(self, name: str, publisher: Publisher | None, **more: object) -> Slot:
        where = {"kv_events_endpoint": publisher.address["endpoint"],
                 "kv_replay_endpoint": publisher.address["replay_endpoint"]} if publisher else {}
        spec = WorkerSpec(id=name, host="127.0.0.1", engine="vllm", **{"port": 1, **where, **more})  # type: ignore[arg-type]
        member = self.registry.add(spec)
        assert member is not None
        return self._slots(member.worker, None)[0]

    def hits(self, slot: Slot, tokens: Sequence[int]) -> int:
        return dict(self.index.depths(chain(tokens, SIZE), slot.bit)).get(slot.bit, 0)

    async def until(self, slot: Slot, tokens: Sequence[int], wanted: int, within: float = 10) -> None:
        async with asyncio.timeout(within):
            while self.hits(slot, tokens) != wanted:  # noqa: ASYNC110 - the index is no event
                await asyncio.sleep(0.005)


def tokens_of(blocks: int, salt: int = 0) -> list[int]:
    return [salt * 10_000 + number for number in range(blocks * SIZE)]
