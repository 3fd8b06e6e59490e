"""Numbers that follow the truth: in-flight gauges, spread, gone workers (R074, R175, R176)."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.conftest import Serve, Setup
from tests.support import raw
from tests.support.replies import LAST, SSE, chunk, event, head, unary, word
from tests.support.stub import Step

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def inflight(setup: Setup, worker: str | None = None) -> float:
    """The sum of the worker's (or all) in-flight gauges in /metrics."""
    samples = await setup.server.metrics()
    return sum(float(v) for k, v in samples.items() if "in_flight" in k.replace("inflight", "in_flight")
               and "worker" in k and (worker is None or worker in k))


async def test_r175_the_in_flight_gauge_says_what_is_open_now(serve: Serve) -> None:
    """1 while a request runs, 0 after it; a removed worker's series are gone, not 0."""
    setup = await serve(2)
    session = await setup.pin(setup.u1)
    release = asyncio.Event()
    again = asyncio.Event()
    setup.u1.then([release, *unary({})], [again, *unary({})])
    running = asyncio.create_task(raw.post(setup.url, headers=session))
    await setup.u1.called()
    assert await inflight(setup, "u1") == 1
    release.set()
    await running
    assert await inflight(setup, "u1") == 0
    last = asyncio.create_task(raw.post(setup.url, headers=session))
    await setup.u1.called(2)
    setup.server.write([setup.u2])
    await setup.server.reload()
    assert [name for name in await setup.server.metrics() if '"u1"' in name] == []
    again.set()
    assert (await last).get("x-infera-worker") == "u1"
    assert [name for name in await setup.server.metrics() if '"u1"' in name] == []


async def test_r176_streams_are_in_flight_until_their_end(serve: Serve) -> None:
    """Five open streams show as 5 until they end, and their durations are those of whole streams."""
    setup = await serve(1)
    release = asyncio.Event()
    setup.u1.always([head(200, [*SSE, ("Transfer-Encoding", "chunked")]), chunk(event(word("a"))), release,
                     chunk(event(word("b", "stop"))), LAST])
    clients = [await raw.Client.connect(setup.url) for _ in range(5)]
    for client in clients:
        await client.post(body={"stream": True})
        await client.head()
    for _ in range(4):
        assert await inflight(setup) == 5
        await asyncio.sleep(0.3)
    release.set()
    assert all([(await client.rest()).whole for client in clients])
    await setup.server.settled()
    assert await inflight(setup) == 0
    samples = await setup.server.metrics()
    durations = {k: v for k, v in samples.items() if k.startswith("infera_request_duration")}
    assert sum(v for k, v in durations.items() if k.split("{")[0].endswith("_count")) == 5
    assert sum(v for k, v in durations.items() if 'le="1.0"' in k) == 0
    for client in clients:
        await client.close()


async def test_r074_requests_of_no_session_are_spread_evenly(serve: Serve) -> None:
    """200 requests over 4 equal workers: 40 to 60 each, and outstanding is never negative."""
    setup = await serve(4)
    for worker in setup.workers:
        worker.always([0.005, *unary({})])
    lows: list[int] = []

    async def some(count: int) -> None:
        async with await raw.Client.connect(setup.url) as client:
            for _ in range(count):
                await client.post()
                assert (await client.response()).status == 200

    async def watch() -> None:
        for _ in range(20):
            lows.extend(r["outstanding"] for r in (await setup.server.health())["replicas"])
            await asyncio.sleep(0.02)

    await asyncio.gather(*(some(25) for _ in range(8)), watch())
    assert all(40 <= len(worker.calls) <= 60 for worker in setup.workers)
    assert min(lows) >= 0
    assert await setup.server.outstanding() == 0


async def test_r074_a_retry_that_succeeds_is_counted_once(pair: Setup) -> None:
    """After a failed attempt, a retry and an aborted stream nothing is outstanding anywhere."""
    session = await pair.pin(pair.u1)
    pair.u1.then([*[head(503)], Step.CLOSE])
    assert (await raw.post(pair.url, headers=session)).status == 200
    assert {r["outstanding"] for r in (await pair.server.health())["replicas"]} == {0}
