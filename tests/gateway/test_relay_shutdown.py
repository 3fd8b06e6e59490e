"""How the server ends while requests are open (design.md §3: never a clean end of what is not complete)."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.gateway.conftest import Serve
from tests.support import raw
from tests.support.replies import LAST, chunked, event, word
from tests.support.stub import Reply, Step

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDLESS: Reply = [*chunked([event(word("a"))], end=False), Step.HANG]


@pytest.mark.parametrize(("limit", "signals"), [("0.3", 1), ("60", 2)], ids=["time-is-up", "second-signal"])
async def test_a_stream_that_outlasts_the_end_is_broken_visibly(serve: Serve, limit: str, signals: int) -> None:
    """At the end of --shutdown-timeout, or at a second signal, an open stream gets an error event and no clean end."""
    setup = await serve(1, "--shutdown-timeout", limit, process=True)
    setup.u1.always(ENDLESS)
    async with await raw.Client.connect(setup.url) as client:
        await client.post(body={"stream": True})
        response = await client.head()
        await anext(client.body())
        for _ in range(signals):
            setup.server.signal(signal.SIGTERM)
            await setup.server.said("Shutting down")
        await client.rest()
    assert '"message":"The router is shutting down."' in response.events()[-1]
    assert not response.whole
    assert await setup.server.stop() == 0
    assert any(" timeout POST /v1/chat/completions " in line for line in setup.server.log)


async def test_an_unanswered_request_is_told_of_the_end(serve: Serve) -> None:
    """A request without an answer yet gets 503 with Retry-After, so that its client asks elsewhere."""
    setup = await serve(1, "--shutdown-timeout", "0.3", process=True)
    setup.u1.always([Step.HANG])
    async with await raw.Client.connect(setup.url) as client:
        await client.post()
        await setup.u1.called(1)
        setup.server.signal(signal.SIGTERM)
        response = await client.response()
    assert (response.status, response.json()["error"]["message"]) == (503, "The router is shutting down.")
    assert response.get("retry-after")


async def test_a_server_that_drains_says_so(serve: Serve) -> None:
    """While a stream ends after SIGTERM: /livez 200, /readyz 503, a new request 503, and the stream comes whole."""
    setup = await serve(1, "--shutdown-timeout", "30", process=True)
    release = asyncio.Event()
    setup.u1.always([*chunked([event(word("a"))], end=False), release, LAST])
    async with await raw.Client.connect(setup.url) as client:
        await client.post("/tokenize", body={})
        response = await client.head()
        await anext(client.body())
        setup.server.signal(signal.SIGTERM)
        await setup.server.said("Shutting down")
        assert (await raw.get(setup.url, "/livez")).status == 200
        ready = await raw.get(setup.url, "/readyz")
        assert (ready.status, ready.json()["status"]) == (503, "draining")
        late = await raw.post(setup.url)
        assert (late.status, late.json()["error"]["message"]) == (503, "The router is shutting down.")
        assert late.get("retry-after")
        release.set()
        await client.rest()
    assert response.whole
    assert await setup.server.stop() == 0


STALLED = [b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
           b"POST /v1/admin/explain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"]


@pytest.mark.parametrize("said", STALLED, ids=["relayed", "control-plane"])
async def test_a_stalled_upload_does_not_outlast_the_limit(serve: Serve, said: bytes) -> None:
    """A client that stops in the middle of its body, and then stays, is told at the limit and not waited for beyond."""
    setup = await serve(1, "--shutdown-timeout", "0.3", process=True)
    async with await raw.Client.connect(setup.url) as client:
        await client.send(said)
        await asyncio.sleep(0.1)
        setup.server.signal(signal.SIGTERM)
        assert (await client.response()).status == 503
        await setup.server.said("Finished server process", within=1.5)
    assert await setup.server.stop() == 0
    assert not [line for line in setup.server.log if line.startswith(("ERROR", "Traceback"))]
