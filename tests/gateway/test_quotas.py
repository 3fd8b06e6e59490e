"""What a client key may: models and requests a minute, in both APIs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.conftest import Serve, Setup
from tests.support import raw
from tests.support.replies import unary

MESSAGES = "/v1/messages"
KEYS = "small models=m,other-* per-minute=2\nmany models=n\nfree\n"
COMPLETION = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}]}
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def guarded(serve: Serve, folder: Path, *flags: str) -> Setup:
    file = folder / "keys"
    file.write_text(KEYS)
    setup = await serve(1, "--api-key-file", str(file), "--anthropic", "translate", *flags)
    setup.u1.always(unary(COMPLETION))
    return setup


async def ask(setup: Setup, key: str, path: str = raw.CHAT, model: str | None = "m") -> raw.Response:
    body: dict[str, Any] = {"max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
    if model is not None:
        body["model"] = model
    field = {"x-api-key": key} if path.startswith(MESSAGES) else {"Authorization": f"Bearer {key}"}
    return await raw.post(setup.url, path, body, field)


async def test_over_its_quota_a_key_is_told_when_to_come_back(serve: Serve, tmp_path: Path) -> None:
    """429 in both shapes, with a time to wait; other keys and counting go on, and no worker hears of it."""
    setup = await guarded(serve, tmp_path)
    assert [(await ask(setup, "small")).status for _ in range(3)] == [200, 200, 429]
    refused = await ask(setup, "small")
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert (refused.get("x-should-retry"), refused.get("x-infera-worker")) == ("true", None)
    assert 2 <= int(refused.get("retry-after") or 0) <= 60
    theirs = await ask(setup, "small", MESSAGES)
    assert (theirs.status, theirs.json()["type"], theirs.json()["error"]["type"]) == (429, "error", "rate_limit_error")
    assert (await ask(setup, "small", MESSAGES + "/count_tokens")).status != 429
    assert (await ask(setup, "free")).status == 200
    assert len([call for call in setup.u1.calls if call.head.path == raw.CHAT]) == 3


async def test_the_metrics_tell_a_quota_from_a_full_router(serve: Serve, tmp_path: Path) -> None:
    """What a key used up counts as quota, a model it may not use as forbidden; the router was never full."""
    setup = await guarded(serve, tmp_path)
    for _ in range(3):
        await ask(setup, "small")
    await ask(setup, "small", MESSAGES)
    await ask(setup, "many")
    found = await setup.server.metrics()
    counted = [found[f'infera_requests_rejected_total{{reason="{why}"}}'] for why in ("quota", "forbidden", "full")]
    assert counted == [2, 1, 0]


async def test_a_model_that_is_not_the_keys_is_403(serve: Serve, tmp_path: Path) -> None:
    """Names the key's models, never the key; a request without a model is refused, too."""
    setup = await guarded(serve, tmp_path)
    refused = await ask(setup, "many")
    assert (refused.status, refused.json()["error"]["type"]) == (403, "permission_error")
    assert refused.json()["error"]["code"] == "model_not_allowed"
    assert "may not use the model 'm'; it may use: n." in refused.json()["error"]["message"]
    assert refused.get("x-should-retry") == "false"
    theirs = await ask(setup, "many", MESSAGES)
    assert (theirs.status, theirs.json()["error"]["type"]) == (403, "permission_error")
    nameless = await ask(setup, "many", model=None)
    assert (nameless.status, "must name a model" in nameless.json()["error"]["message"]) == (403, True)
    assert setup.runs() == (0,)


async def test_an_alias_is_allowed_by_either_name(serve: Serve, tmp_path: Path) -> None:
    """The client's name of the model, or the engine's."""
    setup = await guarded(serve, tmp_path, "--model-alias", "other-x=served", "--model-alias", "third=m")
    assert (await ask(setup, "small", model="other-x")).status in {200, 404}
    assert (await ask(setup, "small", model="third")).status == 200
    assert (await ask(setup, "small", model="served")).status == 403


async def test_the_policys_own_plan_goes_on_behind(serve: Serve, tmp_path: Path) -> None:
    """A policy that reads prompts gets the requests that may go on, and only those."""
    setup = await guarded(serve, tmp_path, "--router-policy", "cost")
    assert (await ask(setup, "many")).status == 403
    assert (await ask(setup, "free")).status == 200
    assert json.loads(setup.u1.calls[0].body)["model"] == "m"
