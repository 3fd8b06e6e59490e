"""Refusals on the wire: each API's own status and type, whether to ask again, and when."""

from __future__ import annotations

import asyncio

import pytest

from infera_cli.errors import InferaError, NoRoutableWorker, TooManyRequests, Unauthorized, UpstreamTimeout
from infera_cli.gateway.refusals import error_event, refusal
from tests.gateway.conftest import Serve, Setup
from tests.support import raw
from tests.support.stub import Step

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
FULL = TooManyRequests("full", code="server_overloaded", retry_after=10)


async def refused_for(setup: Setup) -> dict[str, float]:
    """How many requests were refused, by the reason in the metrics."""
    name = 'infera_requests_rejected_total{reason="'
    found = await setup.server.metrics()
    return {key.removeprefix(name).rstrip('"}'): n for key, n in found.items() if key.startswith(name) and n}


@pytest.mark.parametrize(
    ("path", "error", "status", "fields"),
    [
        (CHAT, FULL, 429, [("x-should-retry", "true"), ("retry-after", "10")]),
        (MESSAGES, FULL, 529, [("x-should-retry", "true"), ("retry-after", "10")]),
        (MESSAGES, NoRoutableWorker("none", retry_after=5), 529, [("x-should-retry", "true"), ("retry-after", "5")]),
        (CHAT, UpstreamTimeout("late"), 504, [("x-should-retry", "false")]),
        (CHAT, Unauthorized("key"), 401, [("x-should-retry", "false"), ("www-authenticate", "Bearer")]),
    ],
)
def test_a_refusal_has_the_status_of_the_api_and_says_whether_to_ask_again(
    path: str, error: InferaError, status: int, fields: list[tuple[str, str]]
) -> None:
    """With a throw of the dice in the middle, the wait is the estimate."""
    said = refusal(path, error, 0.5)
    assert (said.status, said.fields) == (status, fields)


def test_an_error_inside_a_stream_is_an_event_of_the_api() -> None:
    """Three shapes for three APIs."""
    error = NoRoutableWorker("none")
    assert b'"type":"overloaded_error"' in error_event(MESSAGES, error)
    assert error_event("/v1/responses", error).startswith(b'event: error\ndata: {"type":"error","code":')
    assert error_event(CHAT, error).startswith(b'data: {"error":{')


@pytest.mark.asyncio(loop_scope="session")
async def test_a_full_router_says_so_in_both_apis(serve: Serve) -> None:
    """429 server_overloaded and 529 overloaded_error, a wait of at least two seconds, and one reason in the metrics."""
    setup = await serve(1, "--max-inflight", "1")
    setup.u1.always([Step.HANG])
    async with await raw.Client.connect(setup.url) as client:
        await client.post(CHAT)
        await asyncio.wait_for(setup.u1.called(), 5)
        chat = await raw.post(setup.url, CHAT)
        messages = await raw.post(setup.url, MESSAGES)
    assert (chat.status, chat.json()["error"]["code"]) == (429, "server_overloaded")
    assert (messages.status, messages.json()["error"]["type"]) == (529, "overloaded_error")
    assert await refused_for(setup) == {"full": 2}
    for response in (chat, messages):
        assert response.get("x-should-retry") == "true"
        assert 2 <= int(response.get("retry-after") or 0) <= 60


@pytest.mark.asyncio(loop_scope="session")
async def test_nobody_to_send_to_is_said_in_both_apis(serve: Serve) -> None:
    """503 and 529 when the only worker is drained; one reason in the metrics."""
    setup = await serve(1)
    await raw.post(setup.url, "/v1/admin/workers/u1/drain")
    chat, messages = [await raw.post(setup.url, path) for path in (CHAT, MESSAGES)]
    assert (chat.status, messages.status) == (503, 529)
    assert await refused_for(setup) == {"nothing_routable": 2}
    assert messages.json()["error"]["type"] == "overloaded_error"
