"""The simulated engine's KV events: published over ZeroMQ, kept for replay (engines §1.8, §8.6)."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import zmq

from infera_cli.simulator.cache import CacheEvent, Stored

FORMS = ("map", "array", "batch-map")
HASHES = ("int", "signed", "bytes")
_END = b"\xff" * 8


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEventsConfig:
    """As `--kv-events-config`, plus how events are written (engines §1.8.3, §1.8.4)."""

    endpoint: str
    replay_endpoint: str | None = None
    topic: str = ""
    buffer_steps: int = 10_000
    form: str = "map"
    hashes: str = "int"


def config_of(text: str | None, form: str, hashes: str) -> KvEventsConfig | None:
    """The flag's JSON; None where events are off. Raises ValueError."""
    given = json.loads(text) if text else {}
    if not isinstance(given, dict):
        raise ValueError("--kv-events-config must be a JSON object")  # noqa: TRY004 - a wrong flag
    if not given.get("enable_kv_cache_events") or given.get("publisher", "zmq") != "zmq":
        return None
    return KvEventsConfig(
        endpoint=str(given.get("endpoint", "tcp://*:5557")), replay_endpoint=given.get("replay_endpoint"),
        topic=str(given.get("topic", "")), buffer_steps=int(given.get("buffer_steps", 10_000)),
        form=form, hashes=hashes,
    )  # fmt: skip


class KvEvents:
    """Publishes what the cache does. Needs a running loop; sockets are bound when it is made (OSError)."""

    def __init__(self, config: KvEventsConfig, block_size: int) -> None:
        self._config = config
        self._block_size = block_size
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._prompts: dict[str, tuple[Sequence[int], str]] = {}
        self._gone: list[str] = []
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=config.buffer_steps)
        self._next = 0
        self._out = self._bind(zmq.PUB, config.endpoint)
        self._replay = self._bind(zmq.ROUTER, config.replay_endpoint) if config.replay_endpoint else None
        if self._replay is not None:
            self._replay.setsockopt(zmq.SNDHWM, 0)
            asyncio.get_running_loop().add_reader(self._replay.fileno(), self._answer)

    def _bind(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.bind(endpoint.removesuffix(":0") + ":*" if endpoint.endswith(":0") else endpoint)
        return socket

    def sources(self) -> dict[str, Any]:
        """The reply of GET /kv_event_sources."""
        config = self._config
        return {"0": {
            "enable_kv_cache_events": True, "publisher": "zmq", "endpoint": _bound(self._out),
            "replay_endpoint": _bound(self._replay) if self._replay is not None else None,
            "buffer_steps": config.buffer_steps, "hwm": 100_000, "max_queue_size": 100_000, "topic": config.topic,
        }}  # fmt: skip

    def close(self) -> None:
        """Publish no more."""
        if self._replay is not None:
            asyncio.get_running_loop().remove_reader(self._replay.fileno())
        self._context.destroy(linger=100)

    # ── what the cache does ──────────────────────────────────────────────────────────────────────────
    def submitted(self, sequence: str, ids: Sequence[int], salt: str) -> None:
        """Blocks that `sequence` fills will be announced with these tokens."""
        self._prompts[sequence] = ids, salt

    def ended(self, sequence: str) -> None:
        """It fills no more; what is still to be announced needs it until then."""
        self._gone.append(sequence)

    def publish(self, events: Sequence[CacheEvent]) -> None:
        """One batch of what happened; nothing happened, nothing is sent."""
        if events:
            self.send(self.batch(events))
        for sequence in self._gone:
            self._prompts.pop(sequence, None)
        self._gone.clear()

    def cleared(self) -> None:
        """The cache was emptied on demand."""
        self.send(self._packed([self._shaped("AllBlocksCleared", {})]))

    def batch(self, events: Sequence[CacheEvent]) -> bytes:
        """What `publish` would send."""
        return self._packed([self._told(event) for event in events])

    def _packed(self, events: list[Any]) -> bytes:
        now, rank = time.time(), 0
        batch: Any = [now, events, rank]
        if self._config.form == "batch-map":
            batch = {"ts": now, "events": events, "data_parallel_rank": rank}
        return msgspec.msgpack.encode(batch)

    def send(self, payload: bytes) -> None:
        """Send a batch, and keep it for replay."""
        self._kept.append((self._next, payload))
        self._out.send_multipart([self._config.topic.encode(), self._next.to_bytes(8, "big"), payload])
        self._next += 1

    def _told(self, event: CacheEvent) -> Any:
        if not isinstance(event, Stored):
            gone = {"block_hashes": [self._hash(event.hash)], "medium": "GPU", "group_idx": 0}
            return self._shaped("BlockRemoved", gone)
        size, count = self._block_size, len(event.hashes)
        ids, salt = self._prompts.get(event.owner, ((), ""))
        extra = [[salt] if salt and not event.start and not at else None for at in range(count)]
        return self._shaped("BlockStored", {
            "block_hashes": [self._hash(hash_) for hash_ in event.hashes],
            "parent_block_hash": None if event.parent is None else self._hash(event.parent),
            "token_ids": list(ids[event.start * size : (event.start + count) * size]),
            "block_size": size, "lora_id": None, "medium": "GPU", "lora_name": None, "extra_keys": extra,
            "group_idx": 0, "kv_cache_spec_kind": "full_attention",
        })  # fmt: skip

    def _shaped(self, tag: str, members: Mapping[str, Any]) -> Any:
        return [tag, *members.values()] if self._config.form == "array" else {"type": tag, **members}

    def _hash(self, hash_: int) -> int | bytes:
        if self._config.hashes == "bytes":
            return bytes(24) + hash_.to_bytes(8, "big")
        return hash_ - (1 << 64) if self._config.hashes == "signed" and hash_ >> 63 else hash_

    # ── replay ───────────────────────────────────────────────────────────────────────────────────────
    def _answer(self) -> None:
        assert self._replay is not None  # noqa: S101 - only then is it read
        while True:
            try:
                frames = self._replay.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(frames) != 3 or len(frames[2]) != 8:
                continue
            start = int.from_bytes(frames[2], "big")
            for number, payload in self._kept:
                if number >= start:
                    told = [frames[0], b"", self._config.topic.encode(), number.to_bytes(8, "big"), payload]
                    self._replay.send_multipart(told)
            self._replay.send_multipart([frames[0], b"", b"", _END, b""])


def _bound(socket: zmq.Socket[bytes]) -> str:
    endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
    return (endpoint if isinstance(endpoint, bytes) else b"").decode().rstrip("\0")
