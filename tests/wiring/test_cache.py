"""`kv-aware` over simulated engines with real events; tokens compared with the engine's own (R089, R094; §3.3)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from infera_cli.config.serve import load_serve
from infera_cli.errors import UsageError
from infera_cli.routing.types import WorkerSpec
from infera_cli.tokens.load import load_all
from infera_cli.wiring.cache import tokenizers_of
from infera_cli.wiring.tokens_check import TokensCheck
from tests.support import raw
from tests.support.local import Captured
from tests.support.server import Running
from tests.tokens import models

PROMPT = "Explain how a paged cache of keys and values works, and what a prefix is good for. " * 4


class SimServer(Running):
    """`infera serve --sim N --router-policy kv-aware` in this loop."""

    def __init__(self, server: Captured) -> None:
        self.server = server
        self.url = server.url


@contextlib.asynccontextmanager
async def simulated(count: int, **flags: str) -> AsyncIterator[SimServer]:
    """The server, once every engine's events are followed."""
    typed = {"sim": str(count), "port": "0", "router_policy": "kv-aware", **flags}
    server = Captured(load_serve(typed, {}).settings)
    ready = asyncio.Event()
    task = asyncio.create_task(server.serve(lambda _line: None, ready.set))
    await ready.wait()
    made = SimServer(server)
    assert server.cache is not None
    assert server.cache.feed is not None
    async with asyncio.timeout(20):
        while not server.cache.feed.settled:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    try:
        yield made
    finally:
        server.http.should_exit = server.http.force_exit = True
        await task
        server.close()
        for pool in server.upstream.pools:
            pool.close()
        await asyncio.sleep(0.01)


async def chat(server: SimServer, messages: list[dict[str, Any]]) -> raw.Response:
    body = {"model": "sim", "messages": messages, "max_tokens": 20}
    answer = await raw.post(server.url, raw.CHAT, body)
    assert answer.status == 200
    return answer


async def test_a_conversation_stays_where_its_cache_is_and_the_engine_agrees() -> None:
    """Turn after turn the engine finds in its cache what the router expected, within a block a request."""
    async with simulated(3, kv_overlap_weight="2") as server:
        messages = [{"role": "user", "content": PROMPT}]
        served, last = [], 0
        for turn in range(5):
            answer = await chat(server, messages)
            served.append(answer.get("x-infera-worker"))
            said = answer.json()
            if turn:
                assert said["usage"]["prompt_tokens_details"]["cached_tokens"] >= last
            last = said["usage"]["prompt_tokens"] // 16 * 16
            messages += [said["choices"][0]["message"], {"role": "user", "content": f"And then? {turn} {PROMPT[:90]}"}]
            messages[-2] = {"role": "assistant", "content": messages[-2]["content"]}
        assert len(set(served)) == 1
        found = await server.metrics()
        name = f'worker_id="{served[0]}"'
        expected = found[f"infera_kv_expected_cached_tokens_total{{{name}}}"]
        reported = found[f"infera_kv_reported_cached_tokens_total{{{name}}}"]
        assert reported > 500
        assert abs(expected - reported) <= 5 * 16  # a block that decoding filled may be announced a moment later
        assert found[f"infera_kv_drifting{{{name}}}"] == 0


async def test_different_conversations_spread() -> None:
    """A cold fleet is used evenly, and the cache view counts what each then holds."""
    async with simulated(3) as server:
        served: Counter[str | None] = Counter()
        for number in range(9):
            answer = await chat(server, [{"role": "user", "content": f"{number} {PROMPT}"}])
            served[answer.get("x-infera-worker")] += 1
        assert max(served.values()) - min(served.values()) <= 1
        async with asyncio.timeout(10):
            while True:
                views = [(await raw.get(server.url, f"/v1/admin/cache-view/sim{n}")).json() for n in range(3)]
                if all(view["block_count"] >= 15 for view in views):
                    break
                await asyncio.sleep(0.02)


def test_the_policy_needs_a_tokenizer() -> None:
    """Exit status 2 and what to give; simulated engines bring their own (C41)."""
    with pytest.raises(UsageError) as refused:
        load_serve({"worker": ["http://h:1"], "router_policy": "kv-aware"}, {})
    assert "--router-tokenizer-path" in refused.value.message
    assert load_serve({"worker": ["http://h:1"]}, {}).settings.router_policy == "session"
    assert load_serve({"sim": "1", "router_policy": "kv-aware"}, {}).settings.router_policy == "kv-aware"


class Engine:
    """An engine's /tokenize, as a fetcher."""

    def __init__(self, answer: list[int] | None) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, _spec: WorkerSpec, path: str, *, timeout: float, body: bytes | None = None) -> Any:  # noqa: ASYNC109
        assert path == "/tokenize"
        assert body is not None
        self.asked.append(json.loads(body))

        class Reply:
            status = 404 if self.answer is None else 200
            body = json.dumps({"tokens": self.answer}).encode()

        return Reply


async def test_tokens_are_compared_with_the_engines_once_a_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A difference is one clear line with the place; an engine without the route is asked again another time."""
    check = TokensCheck(load_all([str(models.write(tmp_path))]))
    spec = WorkerSpec(id="w", host="h", port=1, engine="vllm")
    silent, other = Engine(None), Engine([1, 2, 3])
    with caplog.at_level(logging.INFO, "infera.kv"):
        for engine in (silent, other, other):
            check.look(spec, ("m",), "vllm", engine)  # type: ignore[arg-type]
            await asyncio.gather(*check._tasks)
    assert check.verdicts == {"m": False}
    assert len(other.asked) == 2
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert "from token 0 on" in warnings[0]


def test_the_tokens_of_simulated_engines_have_a_name() -> None:
    """`--router-tokenizer-path sim` serves engines of `infera launch sim`, without a file."""
    typed = {"worker": ["http://127.0.0.1:9"], "router_policy": "kv-aware", "router_tokenizer_path": ["sim"]}
    prompts = tokenizers_of(load_serve(typed, {}).settings).of("any")
    assert prompts is not None
    assert prompts.template is not None
