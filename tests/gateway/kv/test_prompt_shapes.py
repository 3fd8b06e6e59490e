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


