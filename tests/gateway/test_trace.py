"""Recording what is served, without what is said."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from infera_cli.workload import traces
from tests.gateway.conftest import Setup
from tests.support import raw
from tests.support.replies import error, unary

pytestmark = pytest.mark.asyncio(loop_scope="session")

ANSWER = unary({"choices": [], "usage": {"prompt_tokens": 321, "completion_tokens": 7}})
SYSTEM = {"role": "system", "content": "You know all about rivers. " * 40}


def chat(question: str) -> dict[str, Any]:
    return {"model": "m", "messages": [SYSTEM, {"role": "user", "content": question}]}


Row = dict[str, Any]


async def recorded(setup: Setup, *bodies: Row, headers: dict[str, str] | None = None) -> list[Row]:
    """The rows of a recording during which `bodies` were sent."""
    rows: list[dict[str, Any]] = []
    async with (
        asyncio.timeout(20), httpx.AsyncClient(base_url=setup.url, timeout=10) as http,
        http.stream("GET", "/v1/admin/trace", params={"seconds": 60}) as stream,
    ):
        lines = stream.aiter_lines()
        await anext(lines)      # an empty line: it has begun
        for body in bodies:
            assert (await raw.post(setup.url, body=body, headers=headers or {})).status == 200
        while len(rows) < len(bodies):
            line = await anext(lines)
            if line.strip():
                rows.append(json.loads(line))
    return rows


async def test_a_row_has_time_lengths_and_pages(solo: Setup) -> None:
    """Token counts are the engine's own; there is a name for every 64 tokens of text begun."""
    solo.u1.always(ANSWER)
    first, second = await recorded(solo, chat("Which is the longest?"), chat("Where is the Nile?"))
    assert (first["input_length"], first["output_length"], first["block_size"]) == (321, 7, 64)
    assert 0 <= first["timestamp"] <= second["timestamp"]
    text = 1 + 40 * 27 + 1 + len("Which is the longest?")
    assert len(first["hash_ids"]) == -(-text // 256)


async def test_equal_beginnings_have_equal_names(solo: Setup) -> None:
    """Two prompts behind one system prompt share its full pages and no later one."""
    solo.u1.always(ANSWER)
    first, second, again = await recorded(solo, chat("a" * 300), chat("b" * 300), chat("a" * 300))
    shared = (1 + 40 * 27) // 256
    assert first["hash_ids"][:shared] == second["hash_ids"][:shared]
    assert set(first["hash_ids"][shared:]).isdisjoint(second["hash_ids"][shared:])
    assert first["hash_ids"] == again["hash_ids"]


async def test_nothing_that_was_said_is_in_a_trace(solo: Setup) -> None:
    """A row holds numbers and keyed names alone, and another recording names the same prompt and session otherwise."""
    solo.u1.always(ANSWER)
    (one,), (two,) = [await recorded(solo, chat("A secret."), headers={"X-Session-Id": "alice"}) for _ in range(2)]
    assert set(one) == {"timestamp", "input_length", "output_length", "hash_ids", "block_size", "session"}
    assert "alice" not in json.dumps(one)
    assert one["session"] != two["session"]
    assert set(one["hash_ids"]).isdisjoint(two["hash_ids"])


async def test_a_session_goes_along_with_its_requests(solo: Setup) -> None:
    """Rows of one session bear one key, whoever gave the session its name, and the trace's reader keeps it."""
    solo.u1.always(ANSWER)
    rows = await recorded(solo, chat("One."), chat("Two."), headers={"X-Session-Id": "s"})
    assert rows[0]["session"] == rows[1]["session"]
    trace = traces.mooncake([json.dumps(row) for row in rows], "trace", 1)
    assert trace.page == 64
    assert trace.item(0).session == trace.item(1).session == rows[0]["session"]
    assert len(trace.item(0).turns) == 1


async def test_failures_leave_no_row(solo: Setup) -> None:
    """A request that its worker refused is in no trace."""
    solo.u1.always(error(400, {"error": {"message": "no"}}))
    async with (
        asyncio.timeout(20), httpx.AsyncClient(base_url=solo.url, timeout=10) as http,
        http.stream("GET", "/v1/admin/trace", params={"seconds": 0.5}) as stream,
    ):
        lines = stream.aiter_lines()
        await anext(lines)
        assert (await raw.post(solo.url, body=chat("No."))).status == 400
        assert [line async for line in lines if line.strip()] == []


async def test_how_long_is_checked(solo: Setup) -> None:
    """No time, or more than a day, is refused."""
    for seconds in ("0", "-1", "100000", "x"):
        assert (await raw.get(solo.url, f"/v1/admin/trace?seconds={seconds}")).status == 400
