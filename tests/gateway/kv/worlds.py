"""A real server with `kv-aware` in front of stub workers whose caches the test fills."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from infera_cli.blocks import chain
from infera_cli.routing.kv.targets import Target
from infera_cli.wiring.cache import CacheAware
from tests.support import raw
from tests.support.local import LocalServer
from tests.support.stub import StubWorker

SIZE = 16


class KvServer(LocalServer):
    """`infera serve --router-policy kv-aware`; pages of 16 tokens, as engines would have announced."""

    def __init__(self, workers: Sequence[StubWorker], folder: Path, model: Path, *flags: str) -> None:
        super().__init__(
            workers, folder, "--router-policy", "kv-aware", "--router-tokenizer-path", str(model), *flags
        )
        self.workers = workers

    @property
    def cache(self) -> CacheAware:
        found = self._server.cache
        assert found is not None
        return found

    def know_pages(self) -> None:
        """Every engine has told the size of its pages."""
        for target in self.cache.book.targets():
            target.slot.block_size = SIZE

    def tokens(self, body: dict[str, Any]) -> list[int]:
        """What the body's prompt is made of."""
        route = b"/v1/chat/completions" if "messages" in body else b"/v1/completions"
        reading = self.cache.reader.start(route, msgspec.json.encode(body))
        assert reading._work is not None
        (job,) = reading._work.jobs.values()
        packed = b"".join(piece for _, piece in job.run())
        return [int.from_bytes(packed[at : at + 4], "little") for at in range(0, len(packed), 4)]

    def store(self, name: str, tokens: Sequence[int]) -> int:
        """The engine announces all full blocks of a prompt; how many they are."""
        member = self._server.registry.member(name)
        assert member is not None
        (target,) = self.cache.book.targets_of(member.worker)
        hashes = chain(tokens, SIZE)
        self.cache.index.store(target.slot, None, hashes, list(tokens[: len(hashes) * SIZE]), SIZE)
        return len(hashes)

    def known_to_second_rank(self, text: str) -> tuple[Target, Target]:
        """Worker u0 has two ranks, both returned, and the second holds the prompt of `text`."""
        member = self._server.registry.member("u0")
        assert member is not None
        first, second = self.cache.book.open(member.worker, "vllm", 2)
        self.know_pages()
        tokens = self.tokens({"model": "m", "messages": [{"role": "user", "content": text}]})
        count = len(tokens) // SIZE
        self.cache.index.store(second.slot, None, list(range(count)), tokens[: count * SIZE], SIZE)
        return first, second

    async def chat(self, text: str, headers: Any = None, **more: Any) -> raw.Response:
        """One chat with a single user message."""
        body = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
        return await raw.post(self.url, raw.CHAT, body, headers)

    def served(self) -> Counter[str]:
        """Requests that each worker got."""
        return Counter({worker.name: len(worker.calls) for worker in self.workers})


@contextlib.asynccontextmanager
async def serving(folder: Path, model: Path, *flags: str, count: int = 2) -> AsyncIterator[KvServer]:
    """A server over `count` stubs whose pages are known."""
    async with contextlib.AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(StubWorker(f"u{n}")) for n in range(count)]
        server = await stack.enter_async_context(KvServer(workers, folder, model, *flags))
        server.know_pages()
        yield server
