"""Stand-ins for engines that publish their caches: `python -m bench.kv_upstream COUNT FILE`.

As bench.upstream; besides, each port says like vLLM where it publishes KV events, and has announced the blocks of every
prompt in FILE, a JSON list of lists of token ids. What is sent to `POST /will_hold`, a JSON list of
kv_bodies.Announced, it announces when it has served those requests. Its cache is of the size of a real one: what came
first goes first, its end before its beginning.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections import deque
from functools import partial
from pathlib import Path
from typing import NamedTuple

import uvloop
from xxhash import xxh3_64_hexdigest

from bench import upstream
from bench.kv_bodies import BLOCK, Announced
from infera_cli.blocks import chain
from infera_cli.simengine.kv_events import KvEvents, KvEventsConfig
from infera_cli.simulator.cache import Removed, Stored

METRICS = f'vllm:cache_config_info{{block_size="{BLOCK}"}} 1.0\n'.encode()


CAPACITY = 32_768
"""Blocks that an engine holds: half a million tokens."""


class Batches(NamedTuple):
    """What is published when a sequence of `length` blocks is computed, and when it is dropped again."""

    length: int
    stored: bytes
    removed: bytes


class Held:
    """An engine's cache, and its publisher. Batches are made when they are announced, so that to serve costs the engine
    next to nothing: it shares a core with the load."""

    def __init__(self, events: KvEvents) -> None:
        self.events = events
        self._later: dict[str, Batches] = {}
        self._held: deque[Batches] = deque()
        self._count = 0

    def batches(self, coming: Announced) -> Batches:
        """Of a sequence; its end is dropped before its beginning."""
        self.events.submitted(coming.digest, coming.tokens, "")
        stored = Stored(tuple(coming.hashes), coming.parent, coming.digest, 0)
        removed = [Removed(hash_) for hash_ in reversed(coming.hashes)]
        return Batches(len(coming.hashes), self.events.batch([stored]), self.events.batch(removed))

    def will_hold(self, coming: list[Announced]) -> None:
        """These requests come."""
        self._later.update((each.digest, self.batches(each)) for each in coming)

    def store(self, batches: Batches) -> None:
        """Say what is computed, and what has to go for it."""
        self._held.append(batches)
        self._count += batches.length
        self.events.send(batches.stored)
        while self._count > CAPACITY:
            oldest = self._held.popleft()
            self._count -= oldest.length
            self.events.send(oldest.removed)

    def served(self, body: bytes) -> None:
        """A request is over."""
        if self._later and (batches := self._later.pop(xxh3_64_hexdigest(body), None)) is not None:
            self.store(batches)


class Engine(upstream.Engine):
    """One connection of a router to the engine that publishes `events`."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self.held = held

    def _answer(self, request: bytes) -> None:
        body = request[request.find(b"\r\n\r\n") + 4 :]
        if request.startswith(b"POST /will_hold"):
            self.held.will_hold([Announced(*each) for each in json.loads(body)])
            self._say(b"{}")
        elif request.startswith(b"GET /kv_event_sources"):
            self._say(json.dumps(self.held.events.sources()).encode())
        elif request.startswith(b"GET /metrics"):
            self._say(METRICS)
        else:
            super()._answer(request)
            self.held.served(body)

    def _say(self, body: bytes) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


def announced(prompts: list[list[int]]) -> Held:
    """An engine that has said what is cached; who comes later asks for it again."""
    config = KvEventsConfig(endpoint="tcp://127.0.0.1:0", replay_endpoint="tcp://127.0.0.1:0")
    held = Held(KvEvents(config, BLOCK))
    for number, ids in enumerate(prompts):
        held.store(held.batches(Announced(str(number), None, chain(ids, BLOCK), ids)))
    return held


async def serve(count: int, prompts: list[list[int]]) -> None:
    """Listen on `count` ports, say which, and go on until standard input ends."""
    loop = asyncio.get_running_loop()
    gc.disable()  # its pauses would be taken for the router's
    caches = [announced(prompts) for _ in range(count)]
    servers = [
        await loop.create_server(partial(Engine, held), "127.0.0.1", 0, backlog=4096) for held in caches
    ]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    stepper = asyncio.create_task(upstream._step_all())  # noqa: SLF001 - its own kin
    await loop.run_in_executor(None, sys.stdin.read)
    stepper.cancel()
    for server in servers:
        server.close()
    for held in caches:
        held.events.close()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())))
