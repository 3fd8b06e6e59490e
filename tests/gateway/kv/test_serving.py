"""`kv-aware` and mode `direct` on the wire (R079, R080, R091, R095, R097, R184; C16, C32)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from infera_cli.errors import ConfigError
from infera_cli.gateway.kv import plan as plan_module
from tests.gateway.kv.worlds import SIZE, KvServer, serving
from tests.support import raw, replies
from tests.support.local import LocalServer
from tests.support.stub import StubWorker

LONG = "Tell me about caches, and about what they are good for. " * 12


async def test_r089_the_holder_of_the_templated_prompt_serves_it(tmp_path: Path, model: Path) -> None:
    """Blocks that an engine announced for a chat are found for that chat, and for its text as a completion."""
    async with serving(tmp_path, model, count=3) as server:
        body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": LONG}]}
        blocks = server.store("u1", server.tokens(body))
        answers = [await server.chat(LONG) for _ in range(3)]
        assert [answer.get("x-infera-worker") for answer in answers] == ["u1"] * 3
        text = f"<|im_start|>user\n{LONG}<|im_end|>\n<|im_start|>assistant\n"
        answer = await raw.post(server.url, "/v1/completions", {"model": "m", "prompt": text})
        assert answer.get("x-infera-worker") == "u1"
        found = await server.metrics()
        assert found['infera_router_pick_cache_hits_sum{role="mixed"}'] == 4 * blocks
        assert found['infera_router_pick_request_blocks_count{role="mixed"}'] == 4
        assert found['infera_policy_cache_view_size{worker_id="u1"}'] == blocks
        assert found['infera_policy_active_blocks{worker_id="u1"}'] == 0


async def test_explain_shows_blocks_hits_load_and_cost(tmp_path: Path, model: Path) -> None:
    """For every worker, without sending anything."""
    async with serving(tmp_path, model) as server:
        body = {"model": "m", "messages": [{"role": "user", "content": LONG}]}
        blocks = server.store("u1", server.tokens(body))
        asked = {"path": raw.CHAT, "body": body}
        told = (await raw.post(server.url, "/v1/admin/explain", asked)).json()
        assert (told["worker"], told["why"]) == ("u1", f"kv-aware:{blocks}/{blocks}")
        terms = {one["worker"]: one["terms"] for one in told["candidates"]}
        assert terms["u0"]["cost"] == terms["u0"]["blocks"] == blocks
        assert (terms["u1"]["hits"], terms["u1"]["cost"], terms["u1"]["load"]) == (blocks, 0, 0)
        assert server.served().total() == 0


@pytest.mark.parametrize(("path", "more"), [
    ("/v1/messages", {"max_tokens": 4, "messages": [{"role": "user", "content": LONG}], "system": [
        {"type": "text", "text": "x-anthropic-billing-header: new each time"}]}),
    ("/v1/responses", {"input": LONG}),
])  # fmt: skip
async def test_requests_of_other_apis_are_weighed_and_explained_as_the_chat_they_become(
    tmp_path: Path, model: Path, path: str, more: dict[str, Any]
) -> None:
    """Blocks of the same conversation over chat are found for it, also under another name of the model."""
    async with serving(tmp_path, model, "--model-alias", "other=m") as server:
        blocks = server.store("u1", server.tokens({"model": "m", "messages": [{"role": "user", "content": LONG}]}))
        for name in ("m", "other"):
            asked = {"path": path, "body": {"model": name, **more}}
            told = (await raw.post(server.url, "/v1/admin/explain", asked)).json()
            assert (told["worker"], told["why"]) == ("u1", f"kv-aware:{blocks}/{blocks}")
            answer = await raw.post(server.url, path, {"model": name, **more})
            assert answer.get("x-infera-worker") == "u1"


async def test_cache_view_counts_blocks(tmp_path: Path, model: Path) -> None:
    """infera-wire §3.3: a count, 0 for the unknown, 422 for a rank that is no number of this world."""
    async with serving(tmp_path, model) as server:
        server.store("u0", list(range(64)))
        view = "/v1/admin/cache-view/"
        found = (await raw.get(server.url, f"{view}u0")).json()
        assert found == {"worker_id": "u0", "dp_rank": None, "block_count": 4}
        assert (await raw.get(server.url, f"{view}nobody?dp_rank=1")).json()["block_count"] == 0
        assert (await raw.get(server.url, f"{view}u0?dp_rank=-1")).json()["block_count"] == 0
        for rank in ("x", "--1", "", "1" * 19, "1" * 5000):
            assert (await raw.get(server.url, f"{view}u0?dp_rank={rank}")).status == 422


async def test_cache_view_needs_the_policy(tmp_path: Path) -> None:
    """503 and a sentence when the policy is not kv-aware."""
    async with StubWorker("u0") as worker, LocalServer([worker], tmp_path) as server:
        answer = await raw.get(server.url, "/v1/admin/cache-view/u0")
        assert answer.status == 503
        assert "kv-aware" in answer.json()["detail"]


async def test_r080_prompts_without_a_full_block_are_counted(tmp_path: Path, model: Path) -> None:
    """Twenty short prompts are routed by load, and the counter says twenty."""
    async with serving(tmp_path, model) as server:
        for _ in range(20):
            assert (await server.chat("")).status == 200
        found = await server.metrics()
        assert found["infera_kv_short_prompts_total"] == 20
        assert found['infera_kv_events_received_total{worker_id="u0"}'] == 0
        assert set(server.served().values()) == {10}


async def test_r091_a_view_of_nobody_and_a_fleet_of_nobody(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Blocks of a worker that left or never came are no hit, and told once, not a request; with no worker it is 503."""
    async with serving(tmp_path, model, count=3) as server:
        tokens = server.tokens({"model": "m", "messages": [{"role": "user", "content": LONG}]})
        count = server.store("u2", tokens)
        index = server.cache.index
        index.store(index.open("u9"), None, list(range(count)), tokens[: count * SIZE], SIZE)
        with caplog.at_level(logging.INFO, "infera"):
            server.lose("u2")
            answers = [await server.chat(LONG) for _ in range(6)]
            assert {answer.status for answer in answers} == {200}
            assert server.served()["u0"] + server.served()["u1"] == 6
            server.lose("u0")
            server.lose("u1")
            answer = await server.chat(LONG)
        assert answer.status == 503
        assert answer.json()["error"]["message"]
        told = [one.getMessage() for one in caplog.records]
        (line,) = [line for line in told if "u2" in line or "u9" in line]
        assert line.startswith("worker u2 left the fleet")
        assert max(one.levelno for one in caplog.records) == logging.INFO


async def test_r097_what_cannot_be_rendered_is_routed_by_load(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Forty requests that the template or tokenizer refuses: forty times 200, spread evenly, one warning."""
    async with serving(tmp_path, model, count=4) as server:
        bad = {"role": "assistant", "content": "x", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}
        body = {"model": "m", "messages": [{"role": "user", "content": LONG}, bad]}
        with caplog.at_level(logging.WARNING, "infera.kv"):
            answers = [await raw.post(server.url, raw.CHAT, body) for _ in range(40)]
        assert {answer.status for answer in answers} == {200}
        assert all(8 <= count <= 12 for count in server.served().values())
        assert len([one for one in caplog.records if "routed by load alone" in one.getMessage()]) == 1
        assert (await server.metrics())['infera_kv_fallbacks_total{cause="request"}'] == 40


async def test_r097_a_tokenizer_that_fails_or_takes_too_long_is_done_without(
    tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty prompts that it raises for and twenty that it is stuck in: forty times 200, spread, a warning a cause."""
    monkeypatch.setattr(plan_module, "PATIENCE_SECONDS", 0.05)
    async with serving(tmp_path, model, count=4) as server:
        prompts, stuck = server.cache.tokenizers.of("m"), threading.Event()
        assert prompts is not None
        encode = prompts.words.encode

        def choosy(text: str, **more: Any) -> bytes:
            if "\0" in text:
                raise ValueError("NUL")
            if len(text) > 1_000_000:
                stuck.wait(20)
            return encode(text, **more)

        monkeypatch.setattr(prompts.words, "encode", choosy)
        texts = [f"{number} \0" if number % 2 else f"{number} " + "x" * 1_000_001 for number in range(40)]
        try:
            with caplog.at_level(logging.WARNING, "infera.kv"):
                answers = [await server.chat(text) for text in texts]
            assert [answer.status for answer in answers] == [200] * 40
            assert all(8 <= count <= 12 for count in server.served().values())
            assert server.cache.reader.counters.fallbacks == {"tokenizer": 20, "timeout": 20}
        finally:
            stuck.set()
        told = [one.getMessage().partition(".")[0] for one in caplog.records]
        assert len(told) == 2
        assert all(line.startswith("A request is routed by load alone: ") for line in told)


async def test_the_client_may_leave_while_its_prompt_is_worked_out(tmp_path: Path, model: Path) -> None:
    """Nothing is sent for it then, and nobody else is harmed."""
    async with serving(tmp_path, model) as server:
        body = {"model": "m", "messages": [{"role": "user", "content": "abc def ghi. " * 30_000}]}
        async with await raw.Client.connect(server.url) as client:
            await client.post(raw.CHAT, body)
            async with asyncio.timeout(10):
                while not server.cache.reader.counters.threaded:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            client.reset()
        async with asyncio.timeout(10):
            while not server.cache.reader.counters.rendered:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await server.chat("hello")).status == 200
        assert await server.outstanding() == 0
        assert server.served().total() <= 2


async def test_c32_sessions_stay_where_they_were_when_asked_for(tmp_path: Path, model: Path) -> None:
    """With --session-affinity a pin comes before the caches, and it still counts blocks: asked for, and in flight."""
    async with serving(tmp_path, model, "--session-affinity", count=3) as server:
        first = await server.chat("hello there", {"X-Session-Id": "s1"})
        pinned = next(worker for worker in server.workers if worker.name == first.get("x-infera-worker"))
        other = next(worker for worker in server.workers if worker is not pinned)
        before = await server.metrics()
        tokens = server.tokens({"model": "m", "messages": [{"role": "user", "content": LONG}]})
        blocks = server.store(other.name, tokens)
        release = asyncio.Event()
        pinned.then([release, *replies.unary({})])
        second = asyncio.create_task(server.chat(LONG, {"X-Session-Id": "s1"}))
        await pinned.called(2)
        during = await server.metrics()
        release.set()
        assert (await second).get("x-infera-worker") == pinned.name
        assert during[f'infera_policy_active_blocks{{worker_id="{pinned.name}"}}'] == blocks
        for name, more in (("request_blocks_count", 1), ("request_blocks_sum", blocks), ("cache_hits_sum", 0)):
            sample = f'infera_router_pick_{name}{{role="mixed"}}'
            assert during[sample] - before[sample] == more


async def test_images_go_back_to_where_they_were(tmp_path: Path, model: Path) -> None:
    """Text is not weighed then, which is counted (infera-wire §4.7, §8)."""
    async with serving(tmp_path, model, count=4) as server:
        image = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
        body = {"model": "m", "messages": [{"role": "user", "content": [image]}]}
        served = {(await raw.post(server.url, raw.CHAT, body)).get("x-infera-worker") for _ in range(8)}
        assert len(served) == 1
        found = await server.metrics()
        assert found['infera_cache_locality_skipped_total{reason="multimodal"}'] == 8


async def test_retention_hints_are_counted(tmp_path: Path, model: Path) -> None:
    """By the strongest hint of a request (infera-wire §4.6, §8)."""
    async with serving(tmp_path, model) as server:
        await server.chat("a", prompt_cache_retention="24h")
        await server.chat("b", prompt_cache_key="k")
        await server.chat("c", prompt_cache_retention="off")
        found = await server.metrics()
        for hint in ("long", "short", "none"):
            assert found[f'infera_cache_control_seen_total{{retention="{hint}"}}'] == 1


async def test_a_failed_worker_is_left_and_the_next_best_serves(tmp_path: Path, model: Path) -> None:
    """The prompt is weighed again without it; what it held in flight is given back."""
    async with serving(tmp_path, model) as server:
        body = {"model": "m", "messages": [{"role": "user", "content": LONG}]}
        server.store("u1", server.tokens(body))
        server.workers[1].always(replies.error(500, {"error": "x"}))
        answer = await server.chat(LONG)
        assert (answer.status, answer.get("x-infera-worker")) == (200, "u0")
        assert all(not target.active for target in server.cache.book.targets())


async def test_ranks_are_addressed_by_header(tmp_path: Path, model: Path) -> None:
    """A worker with ranks gets X-Data-Parallel-Rank of the one whose cache fits (infera-wire §4.3)."""
    async with serving(tmp_path, model, count=1) as server:
        first, _second = server.known_to_second_rank(LONG)
        assert first.key == "u0#dp0"
        await server.chat(LONG)
        assert server.workers[0].calls[0].get("x-data-parallel-rank") == "1"


async def test_a_caller_may_write_a_rank_with_zeros(tmp_path: Path, model: Path) -> None:
    """`#dp00` is rank 0, though the cache of rank 1 would fit better."""
    async with serving(tmp_path, model, "--router-mode", "direct", count=1) as server:
        server.known_to_second_rank(LONG)
        await server.chat(LONG, {DIRECT: "u0#dp00"})
        assert server.workers[0].calls[0].get("x-data-parallel-rank") == "0"


async def test_r079_an_empty_tokenizer_folder_stops_the_start(tmp_path: Path) -> None:
    """One sentence that names the path, before anything listens."""
    async with StubWorker("u0") as worker:
        with pytest.raises(ConfigError) as refused:
            KvServer([worker], tmp_path, tmp_path)
    assert str(tmp_path) in refused.value.message


# ── mode direct ──────────────────────────────────────────────────────────────────────────────────────
DIRECT = "X-Worker-Instance-Id"


@pytest.mark.parametrize("policy", [("--router-policy", "round-robin"), ()])
async def test_r184_direct_mode_serves_where_the_caller_says(tmp_path: Path, policy: tuple[str, ...]) -> None:
    """A live id: that worker; absent: the policy; all else 503, the same for all, and nothing is dialled."""
    async with contextlib.AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(StubWorker(f"u{n}")) for n in range(3)]
        server = await stack.enter_async_context(LocalServer(workers, tmp_path, "--router-mode", "direct", *policy))
        named = [await raw.post(server.url, raw.CHAT, {}, {DIRECT: "u2"}) for _ in range(3)]
        assert [answer.get("x-infera-worker") for answer in named] == ["u2"] * 3
        assert all(call.get(DIRECT) is None for call in workers[2].calls)
        await raw.post(server.url, "/v1/admin/workers/u1/drain")
        bad: list[raw.Headers] = [{DIRECT: "nobody"}, {DIRECT: "127.0.0.1:22"}, {DIRECT: "u1"},
               [(DIRECT, "u0"), (DIRECT, "u2")], {DIRECT: "u2#dp7"}, {DIRECT: ""}]  # fmt: skip
        refused = [await raw.post(server.url, raw.CHAT, {}, headers) for headers in bad]
        assert [answer.status for answer in refused] == [503] * len(bad)
        assert len({answer.json()["error"]["code"] for answer in refused}) == 1
        counts = {key: value for key, value in (await server.metrics()).items() if "_duration_seconds_count{" in key}
        assert sum(value for key, value in counts.items() if 'router="direct"' in key) == 2 + len(bad)  # two are none
        free = [await raw.post(server.url, raw.CHAT, {}) for _ in range(4)]
        assert {answer.status for answer in free} == {200}


async def test_r184_explain_follows_the_header_in_direct_mode_alone(tmp_path: Path) -> None:
    """It names the worker that the request would go to, or says that it would be refused."""
    async with StubWorker("u0") as one, StubWorker("u1") as two:
        async with LocalServer([one, two], tmp_path, "--router-mode", "direct") as server:
            for named in ("u0", "u1"):
                asked = {"path": raw.CHAT, "headers": {DIRECT: named}, "body": {}}
                told = (await raw.post(server.url, "/v1/admin/explain", asked)).json()
                assert told["worker"] == named
            asked = {"path": raw.CHAT, "headers": {DIRECT: "nobody"}, "body": {}}
            told = (await raw.post(server.url, "/v1/admin/explain", asked)).json()
            assert told["worker"] is None
            assert DIRECT in told["error"]
        async with LocalServer([one, two], tmp_path) as server:
            told = (await raw.post(server.url, "/v1/admin/explain", asked)).json()
            assert told["worker"] in ("u0", "u1")


async def test_r184_in_auto_mode_the_header_is_ignored(tmp_path: Path) -> None:
    """It neither steers nor reaches the worker (C16)."""
    async with StubWorker("u0") as one, StubWorker("u1") as two, LocalServer([one, two], tmp_path) as server:
        for _ in range(4):
            answer = await raw.post(server.url, raw.CHAT, {}, {DIRECT: "nobody"})
            assert answer.status == 200
        assert all(call.get(DIRECT) is None for call in [*one.calls, *two.calls])


async def test_direct_mode_checks_the_model(tmp_path: Path) -> None:
    """A worker that does not serve the model is no choice (infera-wire §4.1)."""
    async with StubWorker("u0", ["a"]) as one, StubWorker("u1", ["b"]) as two, LocalServer(
        [one, two], tmp_path, "--router-mode", "direct", "--health-interval", "0.05"
    ) as server:
        async with asyncio.timeout(10):
            while len((await raw.get(server.url, "/v1/models")).json()["data"]) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        answer = await raw.post(server.url, raw.CHAT, {"model": "a"}, {DIRECT: "u1"})
        assert answer.status == 503
