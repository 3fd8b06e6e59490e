"""The Responses API in front of engines with and without it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.conftest import Serve
from tests.protocol.messages.said import chunk, text
from tests.protocol.responses.test_responses import events
from tests.support import raw
from tests.support.replies import error, sse, unary

RESPONSES = "/v1/responses"
pytestmark = pytest.mark.asyncio(loop_scope="session")
COMPLETION = {"choices": [{"index": 0, "message": {"content": "hello"}, "finish_reason": "stop"}]}


def body(**members: Any) -> dict[str, Any]:
    return {"model": "m", "input": "hi", **members}


async def test_an_engine_with_responses_gets_them_as_they_are(serve: Serve) -> None:
    """Relayed where offered."""
    setup = await serve(1)
    setup.u1.always(unary({"object": "response"}))
    sent = b'{"model": "m",  "previous_response_id": "r"}'
    assert (await raw.post(setup.url, RESPONSES, sent)).json() == {"object": "response"}
    assert (setup.u1.calls[0].head.path, setup.u1.calls[0].body) == (RESPONSES, sent)


async def test_an_engine_without_them_is_translated_for(serve: Serve) -> None:
    """The chat route stands in, whole and streamed."""
    setup = await serve(1)
    setup.u1.spoken.clear()
    setup.u1.then(unary(COMPLETION), sse([text("a"), chunk(finish="stop")]))
    whole = await raw.post(setup.url, RESPONSES, body(), {"X-Request-Id": "r1"})
    assert (whole.json()["id"], whole.json()["output"][0]["content"][0]["text"]) == ("resp_r1", "hello")
    streamed = await raw.post(setup.url, RESPONSES, body(stream=True))
    assert events(streamed.body)[-1]["type"] == "response.completed"
    assert {call.head.path for call in setup.u1.calls} == {"/v1/chat/completions"}


async def test_a_memory_is_refused_where_nothing_is_stored(serve: Serve) -> None:
    """previous_response_id is 400 in OpenAI's shape, and names the member."""
    setup = await serve(1)
    setup.u1.spoken.clear()
    response = await raw.post(setup.url, RESPONSES, body(previous_response_id="resp_0"))
    assert response.status == 400
    assert response.json()["error"]["param"] == "previous_response_id"


async def test_an_engines_refusal_has_openais_shape(serve: Serve) -> None:
    """Status and sentence are the engine's."""
    setup = await serve(1)
    setup.u1.spoken.clear()
    setup.u1.always(error(400, {"object": "error", "message": "no"}))
    response = await raw.post(setup.url, RESPONSES, body())
    assert (response.status, response.json()["error"]["message"]) == (400, "no")


# ── aliases ──────────────────────────────────────────────────────────────────────────────────────────
async def test_an_alias_names_the_model_on_every_route(serve: Serve) -> None:
    """The engine reads its own name, all else of the body stays as it was written."""
    setup = await serve(1, "--model-alias", "claude-*=m")
    sent = b'{"x": 1.50, "model": "claude-sonnet", "big": 12345678901234567890123}'
    await raw.post(setup.url, "/v1/chat/completions", sent)
    assert setup.u1.calls[0].body == b'{"x":1.50,"model":"m","big":12345678901234567890123}'
    await raw.post(setup.url, "/v1/embeddings", b'{"model": "m"}')
    assert setup.u1.calls[1].body == b'{"model": "m"}'


async def test_a_message_keeps_the_name_that_was_asked_for(serve: Serve) -> None:
    """The client of an alias reads the alias in the answer."""
    setup = await serve(1, "--model-alias", "claude-*=m", "--anthropic", "translate")
    setup.u1.always(unary(COMPLETION))
    asked = {"model": "claude-opus", "messages": [{"role": "user", "content": "hi"}]}
    response = await raw.post(setup.url, "/v1/messages", asked)
    assert json.loads(setup.u1.calls[0].body)["model"] == "m"
    assert response.json()["model"] == "claude-opus"


async def test_a_model_that_is_no_alias_is_not_found(serve: Serve) -> None:
    """Unknown names are 404 and list what is served."""
    setup = await serve(1, "--model-alias", "claude-*=m")
    await setup.ready()
    response = await raw.post(setup.url, "/v1/chat/completions", {"model": "gpt"})
    assert response.status == 404
    assert "m" in response.json()["error"]["message"]
