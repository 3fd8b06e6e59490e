"""Conversations that stopped matching their own beginning (infera sessions)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from infera_cli.gateway.kv.sessions import Sessions, common_blocks, parts_of
from infera_cli.protocol.prompt_body import read
from infera_cli.routing.prompt import Prompt
from tests.gateway.kv.worlds import KvServer
from tests.support import raw
from tests.support.stub import StubWorker

TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}
TURNS = [
    {"role": "system", "content": "billed: 17\nYou are a careful engineer. " + "Think first. " * 40},
    {"role": "user", "content": "Hello " * 40},
    {"role": "assistant", "content": "Yes? " * 40},
    {"role": "user", "content": "Go on " * 40},
]


@pytest_asyncio.fixture
async def server(tmp_path: Path, model: Path) -> AsyncIterator[KvServer]:
    async with contextlib.AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(StubWorker("u0"))]
        made = await stack.enter_async_context(KvServer(workers, tmp_path, model))
        made.know_pages()
        yield made


def test_a_turn_is_compared_with_what_was_made_in_the_same_way() -> None:
    """In a fleet of several engines a prompt has several chains, in any order; which one comes first says nothing."""
    seen = Sessions(lambda: 0.0)
    one, other = ("vllm", 16), ("pypto", 16)
    for chains in ({one: [1, 2], other: [7, 8]}, {other: [7, 8, 9], one: [1, 2, 3]}, {other: [7, 8, 9, 5]},
                   {one: [1, 2, 3, 4], other: [7, 8, 9, 5, 6]}):  # fmt: skip
        seen.saw("s", Prompt(chains=chains))
    assert seen.listing() == []
    seen.saw("s", Prompt(chains={other: [7, 1]}))
    (broken,) = seen.listing()
    assert broken["tokens_lost"] == 64


async def ask(server: KvServer, messages: list[dict[str, Any]], tools: list[Any] | None = None) -> None:
    body: dict[str, Any] = {"model": "m", "messages": messages}
    if tools is not None:
        body["tools"] = tools
    answer = await raw.post(server.url, raw.CHAT, body, {"X-Session-Id": "s1"})
    assert answer.status == 200


async def broken(server: KvServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await raw.get(server.url, "/v1/admin/sessions")).json()["sessions"]
    return found


async def test_a_growing_conversation_is_not_listed(server: KvServer) -> None:
    """Each turn begins with the one before."""
    await ask(server, TURNS[:2])
    await ask(server, TURNS)
    await ask(server, TURNS)
    assert await broken(server) == []


@pytest.mark.parametrize(
    ("place", "old", "new", "part"),
    [(0, "billed: 17", "billed: 18", "first line of the system text"),
     (0, "Think first. ", "Think twice. ", "system text"),
     (1, "Hello", "Hallo", "message 2 (user)")],
)  # fmt: skip
async def test_the_first_part_that_differs_is_named(
    server: KvServer, place: int, old: str, new: str, part: str
) -> None:
    """The attribution line, the system text, or a message of the history; with what it cost."""
    await ask(server, TURNS[:2])
    changed = json.loads(json.dumps(TURNS))
    changed[place]["content"] = changed[place]["content"].replace(old, new)
    await ask(server, changed)
    (row,) = await broken(server)
    assert (row["session"], row["turn"], row["part"], row["times"]) == ("session:s1", 2, part, 1)
    assert row["tokens_lost"] % 16 == 0
    assert row["tokens_lost"] > 0


async def test_changed_tools_are_named(server: KvServer) -> None:
    """Tools stand before everything else in the prompt."""
    await ask(server, TURNS[:2], [TOOL])
    await ask(server, TURNS, [TOOL, TOOL])
    (row,) = await broken(server)
    assert row["part"] == "tools"


async def test_history_that_was_cut_is_named(server: KvServer) -> None:
    """A client that drops old messages loses what came after them."""
    await ask(server, TURNS)
    await ask(server, [TURNS[0], TURNS[3]])
    (row,) = await broken(server)
    assert row["part"] == "message 2 (user)"


def test_sessions_are_bounded() -> None:
    """A million sessions take no more memory than was given."""
    sessions = Sessions(lambda: 0.0, kept_bytes=100_000)
    body = read(b'{"messages":[{"role":"user","content":"x"}]}')
    assert body is not None
    for number in range(5000):
        sessions.saw(f"s{number}", Prompt(chains={("vllm", 16): [1, 2, 3]}, parts=parts_of(body)))
    for number in range(5000):
        sessions.saw(f"s{number}", Prompt(chains={("vllm", 16): [1, 9, 9]}, parts=parts_of(body)))
    assert len(sessions.listing()) <= 1000
    assert sessions._turns.size <= 100_000


def test_common_blocks_are_the_shared_beginning() -> None:
    """A chained hash vouches for all before it, so a few looks suffice."""
    for shared in range(20):
        old, new = list(range(30)), [*range(shared), *range(100, 120)]
        assert common_blocks(old, new) == shared
    assert common_blocks([], [1]) == 0
