"""A client that leaves is noticed at once, and its worker hears of it (replica-router §1.11)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic

import pytest

from tests.gateway.conftest import Serve, Setup
from tests.support import raw
from tests.support.replies import JSON, SSE, chunk, chunked, event, head, word
from tests.support.stub import Reply, Step

pytestmark = pytest.mark.asyncio(loop_scope="session")

NO_HEAD: Reply = [Step.HANG]
HEAD_ONLY: Reply = [head(200, [*SSE, ("Transfer-Encoding", "chunked")]), Step.HANG]
ONE_CHUNK: Reply = [*chunked([event(word("a"))], end=False), Step.HANG]
EVERYTHING = ("--access-log", "--log-format", "json", "--stream-keepalive", "30", "--first-byte-timeout", "60",
              "--idle-timeout", "60")
WAYS = ["close", "reset"]


async def leave(setup: Setup, reply: Reply, body: Mapping[str, object], how: str, headers: dict[str, str]) -> float:
    """Send a request, leave when the worker has it, and return how long the worker's socket stayed open."""
    setup.u1.always(reply)
    client = await raw.Client.connect(setup.url)
    await client.post(body=dict(body), headers=headers)
    seen = await setup.u1.called()
    if reply is ONE_CHUNK:
        await client.head()
        assert await anext(client.body())
    left = monotonic()
    if how == "reset":
        client.reset()
    else:
        await client.close()
    async with asyncio.timeout(5):
        await seen.connection.gone.wait()
    assert seen.connection.closed is not None
    return seen.connection.closed - left


@pytest.mark.parametrize("how", WAYS)
async def test_r001_a_client_that_leaves_a_unary_call_frees_its_worker(pair: Setup, how: str) -> None:
    """The worker's socket is closed within a second, nothing stays open and nobody else is asked."""
    headers = await pair.pin(pair.u1)
    assert await leave(pair, NO_HEAD, {}, how, headers) < 1.0
    await pair.server.settled(within=1)
    assert (len(pair.u1.calls), len(pair.u2.calls)) == (1, 0)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("reply", [NO_HEAD, HEAD_ONLY], ids=["before-head", "after-head"])
async def test_r002_a_client_that_leaves_a_silent_stream_frees_its_worker(pair: Setup, reply: Reply, how: str) -> None:
    """The same before the worker's status line and between its head and the first chunk, without a warning."""
    headers = await pair.pin(pair.u1)
    quiet = len(pair.server.log)
    assert await leave(pair, reply, {"stream": True}, how, headers) < 1.0
    await pair.server.settled(within=1)
    assert [one for one in pair.server.log[quiet:] if one.startswith(("WARNING", "ERROR", "CRITICAL"))] == []


@pytest.mark.parametrize("how", WAYS)
async def test_a29_a_client_that_leaves_mid_stream_frees_its_worker(pair: Setup, how: str) -> None:
    """The worker's socket is closed and outstanding is back to 0 while chunks were flowing."""
    headers = await pair.pin(pair.u1)
    assert await leave(pair, ONE_CHUNK, {"stream": True}, how, headers) < 1.0
    await pair.server.settled(within=1)
    assert pair.u2.calls == []


async def test_b14_a_client_gone_is_the_workers_fault_for_nobody(pair: Setup) -> None:
    """Ten clients that leave do not take the worker out of rotation."""
    headers = await pair.pin(pair.u1)
    for _ in range(10):
        pair.u1.calls.clear()
        await leave(pair, NO_HEAD, {}, "close", headers)
    await pair.server.settled()
    assert (await pair.server.replica("u1"))["ready"]


async def test_r028_disconnects_are_seen_with_every_option_on(serve: Serve) -> None:
    """R001, R002 and A29 hold with keys, an admin token, metrics, access log and every timer on."""
    setup = await serve(1, *EVERYTHING, env={"INFERA_ADMIN_TOKEN": "t", "INFERA_API_KEY": "k"})
    headers = {"Authorization": "Bearer k", "X-Request-Id": "r1"}
    for reply in (NO_HEAD, HEAD_ONLY, ONE_CHUNK):
        for body in ({}, {"stream": True}):
            setup.u1.calls.clear()
            assert await leave(setup, reply, body, "close", headers) < 1.0
            await setup.server.settled(within=1)


async def test_a_client_that_leaves_inside_its_body_sends_nothing_up(solo: Setup) -> None:
    """A request whose body never became complete does not stay open anywhere."""
    client = await raw.Client.connect(solo.url)
    await client.send(raw.request("POST", raw.CHAT, headers={"Content-Length": "100"}) + b"half")
    await client.close()
    await solo.server.settled()
    assert (await raw.post(solo.url)).status == 200
    assert all(seen.body != b"half" for seen in solo.u1.calls)


async def test_a_client_that_shuts_down_its_sending_side_after_the_request(solo: Setup) -> None:
    """A half-closed client counts as gone or is served; either way nothing stays open."""
    solo.u1.always([0.1, *chunked([b"{}"], fields=JSON)])
    async with await raw.Client.connect(solo.url) as client:
        await client.post()
        client.writer.write_eof()
        await client.ended()
    await solo.server.settled()
    assert (await raw.post(solo.url)).status == 200


async def test_r074_leaving_at_every_moment_never_counts_below_zero(pair: Setup) -> None:
    """Whatever moment a client leaves at, outstanding is never negative and ends at 0."""
    steps = [head(200, [*SSE, ("Transfer-Encoding", "chunked")]), *(chunk(event(word(str(n)))) for n in range(8))]
    for worker in pair.workers:
        worker.always([part for step in steps for part in (step, 0.01)] + [b"0\r\n\r\n"])
    lows: list[int] = []
    done = asyncio.Event()

    async def watch() -> None:
        while not done.is_set():
            lows.extend(r["outstanding"] for r in (await pair.server.health())["replicas"])
            await asyncio.sleep(0.02)

    async def visit(number: int) -> None:
        client = await raw.Client.connect(pair.url)
        await client.post(body={"stream": True})
        await asyncio.sleep(number * 0.003)
        client.reset() if number % 2 else await client.close()

    watching = asyncio.create_task(watch())
    await asyncio.gather(*(visit(n) for n in range(48)))
    await pair.server.settled()
    done.set()
    await watching
    assert min(lows) >= 0
    assert await pair.server.outstanding() == 0


async def test_a_client_that_leaves_with_requests_in_the_pipeline_frees_its_worker(solo: Setup) -> None:
    """The request that is being answered hears of it, though later ones were read behind it; those are not sent."""
    solo.u1.always(NO_HEAD)
    client = await raw.Client.connect(solo.url)
    await client.send(raw.request("POST", raw.CHAT, b"{}") * 3)
    seen = await solo.u1.called()
    await client.close()
    async with asyncio.timeout(1):
        await seen.connection.gone.wait()
    await solo.server.settled(within=1)
    assert len(solo.u1.calls) == 1
