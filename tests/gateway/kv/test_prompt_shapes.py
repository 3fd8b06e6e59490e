"""Prompts in every form that the API knows, under the policy that looks into them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.kv.worlds import KvServer
from tests.support import raw, replies
from tests.support.stub import StubWorker

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def chat(*turns: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return raw.CHAT, {"model": "m", "messages": list(turns)}


def completion(prompt: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/completions", {"model": "m", "prompt": prompt}


SHAPES = {
    "text": completion("a"),
    "texts": completion(["a", "b"]),
    "tokens": completion([1, 2, 3]),
    "token-lists": completion([[1, 2], [3]]),
    "chat-text": chat({"role": "user", "content": "a"}),
    "chat-parts": chat({"role": "user", "content": [{"type": "text", "text": "a"}]}),
    "chat-null": chat({"role": "user", "content": "a"}, {"role": "assistant", "content": None}),
    "chat-image": chat({"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]}),
    "chat-no-content": chat({"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [CALL]}),
}


@pytest.mark.parametrize("status", [200, 422])
@pytest.mark.parametrize("shape", SHAPES)
async def test_r038_every_shape_of_prompt_reaches_a_worker(
    tmp_path: Path, model: Path, shape: str, status: int
) -> None:
    """The body arrives as it was sent, and the worker's own status comes back; none is an error of the router."""
    path, body = SHAPES[shape]
    async with StubWorker("u0") as one, StubWorker("u1") as two, KvServer([one, two], tmp_path, model) as server:
        server.know_pages()
        for worker in (one, two):
            worker.always(replies.error(status, {"said": "by the worker"}))
        answer = await raw.post(server.url, path, body)
        calls = [*one.calls, *two.calls]
    assert (answer.status, answer.json()) == (status, {"said": "by the worker"})
    assert [call.body for call in calls] == [json.dumps(body).encode()]


async def test_r038_without_a_usable_prompt_load_decides(tmp_path: Path, model: Path) -> None:
    """Prompts that cannot be read are spread over equally loaded workers."""
    async with StubWorker("u0") as one, StubWorker("u1") as two, KvServer([one, two], tmp_path, model) as server:
        server.know_pages()
        for _ in range(4):
            assert (await raw.post(server.url, "/v1/completions", {"model": "m", "prompt": {"odd": 1}})).status == 200
        assert (len(one.calls), len(two.calls)) == (2, 2)


def messages(*turns: dict[str, Any], **more: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/messages", {"model": "m", "max_tokens": 5, "messages": list(turns), **more}


def response(given: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/responses", {"model": "m", "input": given, **more}


PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
OTHER_SHAPES = {
    "messages-text": messages({"role": "user", "content": "a"}, system="b"),
    "messages-parts": messages({"role": "user", "content": [{"type": "text", "text": "a"}]}, system=[
        {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]),
    "messages-image": messages({"role": "user", "content": [{"type": "text", "text": "a"}, PNG]}),
    "messages-tool-only": messages({"role": "user", "content": "a"}, {"role": "assistant", "content": [USE]},
                                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]}),
    "messages-unknown-block": messages({"role": "user", "content": [{"type": "odd"}, {"type": "text", "text": "a"}]}),
    "messages-no-text": messages({"role": "user", "content": []}),
    "responses-text": response("a", instructions="b"),
    "responses-items": response([{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]),
    "responses-image": response([{"role": "user", "content": [
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}]),
    "responses-call-only": response([{"role": "user", "content": "a"},
                                     {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                                     {"type": "function_call_output", "call_id": "c1", "output": ""}]),
    "responses-unknown-item": response([{"type": "odd"}, {"role": "user", "content": "a"}]),
}


ANSWER = {"choices": [{"message": {"role": "assistant", "content": "b"}, "finish_reason": "stop"}]}


@pytest.mark.parametrize("shape", OTHER_SHAPES)
async def test_r038_every_shape_of_a_translated_prompt_reaches_a_worker(
    tmp_path: Path, model: Path, shape: str
) -> None:
    """One chat request arrives, and the worker decides how it goes; none is an error of the router."""
    path, body = OTHER_SHAPES[shape]
    async with StubWorker("u0") as one, StubWorker("u1") as two, KvServer([one, two], tmp_path, model) as server:
        server.know_pages()
        for worker in (one, two):
            worker.spoken.clear()
            worker.always(replies.unary(ANSWER))
        assert (await raw.post(server.url, path, body)).status == 200
        for worker in (one, two):
            worker.always(replies.error(422, {"message": "the engine's own"}))
        answer = await raw.post(server.url, path, body)
        calls = [*one.calls, *two.calls]
    assert [call.head.path for call in calls] == [raw.CHAT] * 2
    assert answer.status in {400, 422}
    assert b"the engine's own" in answer.body
