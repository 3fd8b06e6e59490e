"""Limits of time: 504 before an answer, a visibly broken one after, and no worker is blamed (rulings 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic

import pytest

from tests.gateway.conftest import Serve
from tests.support import raw
from tests.support.replies import chunked, words
from tests.support.stub import Step

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_r103e_b13_b40_the_request_timeout_is_504_no_retry_and_nobodys_fault(serve: Serve) -> None:
    """No answer within --request-timeout: 504 as an error object, one run, the worker's socket closed."""
    setup = await serve(2, "--request-timeout", "0.5")
    for worker in setup.workers:
        worker.always([Step.HANG])
    since = monotonic()
    response = await raw.post(setup.url)
    assert 0.4 < monotonic() - since < 2
    assert response.status == 504
    assert response.json()["error"]["message"]
    assert response.get("x-session-id")
    assert sum(setup.runs()) == 1
    (seen,) = setup.u1.calls + setup.u2.calls
    async with asyncio.timeout(2):
        await seen.connection.gone.wait()
    assert (await setup.server.health())["replicas_ready"] == 2


async def test_b13_the_request_timeout_also_ends_streams(serve: Serve) -> None:
    """A stream over the limit is broken off visibly, however lively it is."""
    setup = await serve(1, "--request-timeout", "0.6")
    setup.u1.always(chunked(words(100, None), gap=0.05))
    since = monotonic()
    response = await raw.post(setup.url, body={"stream": True})
    assert 0.5 < monotonic() - since < 2.5
    assert (response.status, response.whole) == (200, False)
    assert any('"error"' in one for one in response.events())
    assert (await setup.server.replica("u1"))["ready"]


async def test_b13_a_request_timeout_counts_a_body_that_never_comes(serve: Serve) -> None:
    """A client that stalls inside its body is ended by the same limit; no worker hears of it."""
    setup = await serve(1, "--request-timeout", "0.5")
    async with await raw.Client.connect(setup.url) as client:
        await client.send(raw.request("POST", raw.CHAT, headers={"Content-Length": "100"}) + b"part")
        response = await client.response(within=3)
        assert response.status == 408
        await client.ended()
    assert setup.u1.calls == []


@pytest.mark.parametrize(
    "flags", [("--request-timeout", "0.5"), ("--request-timeout", "0", "--idle-timeout", "0.5")], ids=["total", "idle"]
)
@pytest.mark.parametrize("path", [raw.CHAT, "/v1/admin/explain"])
async def test_a_body_that_stalls_is_408_on_every_route(
    serve: Serve, path: str, flags: Sequence[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The control plane has the relay's limits, and where there is no total one the one for silence holds."""
    setup = await serve(1, *flags)
    async with await raw.Client.connect(setup.url) as client:
        await client.send(raw.request("POST", path, headers={"Content-Length": "100"}) + b"{")
        assert (await client.response(within=3)).status == 408
        await client.ended()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_body_that_keeps_coming_is_not_silent(serve: Serve) -> None:
    """However slowly: it may take longer in all than the limit for silence."""
    setup = await serve(1, "--request-timeout", "0", "--idle-timeout", "0.6")
    body = b'{"model": "m"}'
    async with await raw.Client.connect(setup.url) as client:
        await client.send(raw.request("POST", raw.CHAT, headers={"Content-Length": str(len(body))}))
        for byte in body:
            await asyncio.sleep(0.1)
            await client.send(bytes([byte]))
        assert (await client.response(within=3)).status == 200
    (call,) = setup.u1.calls
    assert call.body == body


async def test_c13_first_byte_and_idle_limits_are_504_or_a_broken_stream(serve: Serve) -> None:
    """--first-byte-timeout gives 504 before anything came, --idle-timeout breaks a stream that fell silent."""
    setup = await serve(1, "--first-byte-timeout", "0.6", "--idle-timeout", "0.6")
    setup.u1.always([Step.HANG])
    assert (await raw.post(setup.url)).status == 504
    setup.u1.always([*chunked(words(1)[:1], end=False), Step.HANG])
    response = await raw.post(setup.url, body={"stream": True})
    assert (response.status, response.whole) == (200, False)
    setup.u1.always(chunked(words(4), gap=0.25))
    assert (await raw.post(setup.url, body={"stream": True})).whole
    assert (await setup.server.replica("u1"))["ready"]
