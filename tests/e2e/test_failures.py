"""What clients see when a real engine dies, and that it is used again once it is back."""

from __future__ import annotations

import asyncio
import json

import httpx
import openai
import pytest

from tests.e2e.conftest import Fleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

LONG = {"model": "tiny", "prompt": "Rivers", "max_tokens": 1500, "temperature": 0, "ignore_eos": True}
SHORT = {**LONG, "max_tokens": 8}


async def home_of(fleet: Fleet, session: str) -> str:
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(
            f"{fleet.router.url}/v1/completions", json=SHORT, headers={"X-Session-Id": session}
        )
    assert answer.status_code == 200
    return answer.headers["x-infera-worker"]


async def sessions_by_home(fleet: Fleet, prefix: str) -> dict[str, str]:
    """One session pinned to each engine."""
    found: dict[str, str] = {}
    for number in range(8):
        session = f"{prefix}-{number}"
        found.setdefault(await home_of(fleet, session), session)
    assert set(found) == set(fleet.engines)
    return found


class Stream:
    """One raw stream: all of its bytes, and how it ended."""

    def __init__(self, fleet: Fleet, session: str) -> None:
        self.url = f"{fleet.router.url}/v1/completions"
        self.headers = {"X-Session-Id": session}
        self.begun = asyncio.Event()
        self.received = b""
        self.broken = False

    async def run(self) -> None:
        async with (
            httpx.AsyncClient(timeout=120) as client,
            client.stream("POST", self.url, json={**LONG, "stream": True}, headers=self.headers) as answer,
        ):
            assert answer.status_code == 200
            try:
                async for piece in answer.aiter_bytes():
                    self.received += piece
                    if self.received.count(b"data: ") >= 5:
                        self.begun.set()
            except httpx.RemoteProtocolError:
                self.broken = True


async def openai_stream(fleet: Fleet, session: str, begun: asyncio.Event) -> None:
    address = f"{fleet.router.url}/v1"
    async with openai.AsyncOpenAI(base_url=address, api_key="unused", max_retries=0) as client:
        stream = await client.completions.create(
            model="tiny", prompt="Rivers", max_tokens=1500, temperature=0, stream=True,
            extra_body={"ignore_eos": True}, extra_headers={"X-Session-Id": session},
        )  # fmt: skip
        async for _chunk in stream:
            begun.set()


async def test_an_engine_killed_in_mid_stream_breaks_its_streams_visibly(fleet: Fleet) -> None:
    """A stream of a killed engine ends with an error event and no clean end; the other engine's go on."""
    homes = await sessions_by_home(fleet, "mid-stream")
    dying, living = Stream(fleet, homes["left"]), Stream(fleet, homes["right"])
    begun = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(dying.run())
        tasks.create_task(living.run())
        official = asyncio.create_task(openai_stream(fleet, homes["left"], begun))
        await asyncio.gather(dying.begun.wait(), living.begun.wait(), begun.wait())
        await asyncio.to_thread(fleet.engines["left"].kill)
    with pytest.raises(openai.APIError):
        await official
    last = dying.received.rstrip().rpartition(b"data: ")[2]
    assert json.loads(last)["error"]["message"]
    assert dying.broken
    assert b"[DONE]" not in dying.received
    assert living.received.rstrip().endswith(b"data: [DONE]")
    assert not living.broken


async def test_an_engine_killed_between_requests_costs_no_request(fleet: Fleet) -> None:
    """After an idle engine is killed, every next request is answered, also those of its own sessions."""
    homes = await sessions_by_home(fleet, "between")
    await asyncio.to_thread(fleet.engines["right"].kill)
    sessions = [*homes.values(), "new-1", "new-2", "new-3"]
    assert [await home_of(fleet, session) for session in sessions] == ["left"] * 5


async def test_an_engine_that_comes_back_is_used_again(fleet: Fleet) -> None:
    """A killed engine leaves the rotation, and returns to it once it has started again."""
    await asyncio.to_thread(fleet.engines["left"].kill)
    await asyncio.to_thread(fleet.router.wait_ready, 1)
    assert await home_of(fleet, "while-away") == "right"
    await asyncio.to_thread(fleet.revive)
    assert {await home_of(fleet, f"returned-{number}") for number in range(4)} == {"left", "right"}
