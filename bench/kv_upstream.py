"""Stand-ins for engines that publish their caches: `python -m bench.kv_upstream COUNT FILE`.

As bench.upstream; besides, each port says like vLLM where it publishes KV events, and has announced the blocks of every
prompt in FILE, a JSON list of lists of token ids. What is sent to `POST /will_hold`, a JSON list of
kv_bodies.Announced, it announces when it has served those requests.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from pathlib import Path

import uvloop
from xxhash import xxh3_64_hexdigest

from bench import upstream
from bench.kv_bodies import BLOCK, Announced
from infera_cli.blocks import chain
from infera_cli.simengine.kv_events import KvEvents, KvEventsConfig
from infera_cli.simulator.cache import Stored

METRICS = f'vllm:cache_config_info{{block_size="{BLOCK}"}} 1.0\n'.encode()


class Engine(upstream.Engine):
    """One connection of a router to the engine that publishes `events`."""

    def __init__(self, events: KvEvents, later: dict[str, Announced]) -> None:
        super().__init__()
        self.events = events
        self.later = later

    def _answer(self, request: bytes) -> None:
        body = request[request.find(b"\r\n\r\n") + 4 :]
        if request.startswith(b"POST /will_hold"):
            self.later.update((each[0], Announced(*each)) for each in json.loads(body))
            self._say(b"{}")
        elif request.startswith(b"GET /kv_event_sources"):
            self._say(json.dumps(self.events.sources()).encode())
        elif request.startswith(b"GET /metrics"):
            self._say(METRICS)
        else:
            super()._answer(request)
            if self.later and (now := self.later.pop(xxh3_64_hexdigest(body), None)) is not None:
                self.events.submitted(now.digest, now.tokens, "")
                self.events.ended(now.digest)
                self.events.publish([Stored(tuple(now.hashes), now.parent, now.digest, 0)])

    def _say(self, body: bytes) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


def announced(prompts: list[list[int]]) -> KvEvents:
    """A publisher that has said what is cached; who comes later asks for it again."""
    config = KvEventsConfig(endpoint="tcp://127.0.0.1:0", replay_endpoint="tcp://127.0.0.1:0")
    events = KvEvents(config, BLOCK)
    for number, ids in enumerate(prompts):
        events.submitted(str(number), ids, "")
        events.publish([Stored(tuple(chain(ids, BLOCK)), None, str(number), 0)])
    return events


async def serve(count: int, prompts: list[list[int]]) -> None:
    """Listen on `count` ports, say which, and go on until standard input ends."""
    loop = asyncio.get_running_loop()
    publishers = [announced(prompts) for _ in range(count)]
    engines = [partial(Engine, publisher, {}) for publisher in publishers]
    servers = [await loop.create_server(engine, "127.0.0.1", 0, backlog=4096) for engine in engines]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    stepper = asyncio.create_task(upstream._step_all())  # noqa: SLF001 - its own kin
    await loop.run_in_executor(None, sys.stdin.read)
    stepper.cancel()
    for server in servers:
        server.close()
    for publisher in publishers:
        publisher.close()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())))
