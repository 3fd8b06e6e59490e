"""`--inject-retention`: what workers are told of how long a prompt stays (infera-wire §4.6; rulings 8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infera_cli.config.serve import load_serve
from infera_cli.errors import UsageError
from tests.gateway.kv.worlds import KvServer
from tests.support import raw, replies
from tests.support.local import LocalServer
from tests.support.stub import StubWorker

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def bodies(worker: StubWorker) -> list[dict[str, Any]]:
    return [json.loads(call.body) for call in worker.calls]


@pytest.mark.parametrize("policy", ["session", "round-robin"])
async def test_every_policy_may_tell_engines(tmp_path: Path, policy: str) -> None:
    """The hint of the request, else the default; the framing follows, and other routes are left alone."""
    flags = ("--router-policy", policy, "--inject-retention", "--router-default-retention", "short")
    async with StubWorker("u0") as worker, LocalServer([worker], tmp_path, *flags) as server:
        for more in ({}, {"prompt_cache_retention": "24h"}, {"kv_transfer_params": {"infera_retention": "none"}}):
            answer = await raw.post(server.url, raw.CHAT, {**CHAT, **more})
            assert answer.status == 200
        await raw.post(server.url, "/v1/embeddings", {"model": "m", "input": "x"})
        hints = [body.get("kv_transfer_params") for body in bodies(worker)]
        assert hints == [{"infera_retention": word} for word in ("short", "long", "none")] + [None]


async def test_kv_aware_tells_engines_what_it_weighed(tmp_path: Path, model: Path) -> None:
    """Also at a second attempt, which begins from the body as the client sent it."""
    async with StubWorker("u0") as one, StubWorker("u1") as two, KvServer(
        [one, two], tmp_path, model, "--inject-retention"
    ) as server:
        for worker in (one, two):
            worker.always(replies.error(500, {"error": "x"}))
        await raw.post(server.url, raw.CHAT, {**CHAT, "prompt_cache_key": "k"})
        told = [body["kv_transfer_params"] for body in (*bodies(one), *bodies(two))]
        assert told == [{"infera_retention": "short"}] * 2


async def test_without_the_flag_bodies_are_not_touched(tmp_path: Path) -> None:
    """Byte for byte, whatever they hint."""
    async with StubWorker("u0") as worker, LocalServer([worker], tmp_path) as server:
        body = json.dumps({**CHAT, "prompt_cache_retention": "24h"}, indent=1).encode()
        await raw.post(server.url, raw.CHAT, body)
        assert worker.calls[0].body == body


@pytest.mark.parametrize("flags", [{"router_mode": "direct"}, {"inject_retention": True}])
@pytest.mark.parametrize("policy", ["cost", "prefix-aware", "adaptive"])
def test_the_scheduler_decides_itself(policy: str, flags: dict[str, Any]) -> None:
    """A caller's choice of worker, and edits of bodies, do not go with its queue: refused at the start."""
    with pytest.raises(UsageError, match="do not go together"):
        load_serve({"worker": ["http://127.0.0.1:1"], "router_policy": policy, **flags}, {})
