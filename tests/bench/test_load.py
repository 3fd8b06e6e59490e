"""That the benchmark's load and its upstreams count what they should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bench.load import Traffic, closed_loop, paced
from bench.upstream import Engine


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("traffic", [Traffic(prompt=2000), Traffic(prompt=100_000, sessions=3)])
async def test_every_unary_request_is_answered_once(port: int, traffic: Traffic) -> None:
    """A closed loop of a given count sends that many requests and sees that many whole answers."""
    tally = await closed_loop(port, traffic, connections=4, count=50)
    assert (tally.done, tally.failed) == (50, 0)


async def test_a_stream_is_over_with_its_last_chunk(port: int) -> None:
    """An answer in chunks counts once, however many reads it took."""
    tally = await closed_loop(port, Traffic(prompt=10, events=65), connections=2, count=6)
    assert (tally.done, tally.failed) == (6, 0)
    assert tally.reads >= 6


async def test_paced_requests_each_have_a_latency(port: int) -> None:
    """Requests at a rate are all timed."""
    tally = await paced(port, Traffic(prompt=10), rate=200, seconds=0.1)
    assert (tally.done, len(tally.latencies)) == (20, 20)


async def test_an_answer_cut_short_is_a_failure() -> None:
    """A connection that closes in mid-answer counts as failed, and another is opened."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    tally = await closed_loop(port, Traffic(prompt=10), connections=1, count=3)
    server.close()
    await server.wait_closed()
    assert (tally.done, tally.failed) == (0, 3)
