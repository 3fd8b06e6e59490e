"""`/v1/cache/prewarm`, against a stand-in daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from infera_cli.gateway.prewarm import CacheDaemon
from tests.gateway.endpoints import world
from tests.support import kvd

PREWARM = "/v1/cache/prewarm"
pytestmark = pytest.mark.asyncio
BODY = {"model": "m", "block_hashes": ["00ff", "0102030405060708"], "compat_key": "k", "deadline_ms": 250}

HELLO = (
    b"\x00\x00\x00\x53\x84\xa2op\xa5hello\xa9client_id\xb6infera-router-prefetch"
    b"\xb0protocol_version\x01\xb4prefers_shared_arena\xc2"
)
HINT = (
    b"\x00\x00\x00\x49\x85\xa2op\xadprefetch_hint\xa4keys\x92\xc4\x02\x00\xff\xc4\x08\x01\x02\x03\x04\x05\x06\x07\x08"
    b"\xa5model\xa1m\xaacompat_key\xa1k\xabdeadline_ms\xcc\xfa"
)


async def asked(daemon: CacheDaemon | None, body: Any) -> httpx.Response:
    async with world.client(world.parts(world.FakeFleet(), prewarm=daemon)) as http:
        given = {"content": body} if isinstance(body, bytes) else {"json": body}
        return await http.post(PREWARM, **given)


@pytest_asyncio.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[kvd.Daemon]:
    async with kvd.running(tmp_path / "kvd.sock") as running:
        yield running


async def test_the_daemon_hears_exactly_these_bytes(daemon: kvd.Daemon) -> None:
    """Hello without an arena, then the hint, then the end; each frame has its length in front."""
    answer = await asked(CacheDaemon(str(daemon.path)), BODY)
    assert (answer.status_code, answer.json()) == (202, {"accepted": True, "n_keys": 2})
    await asyncio.wait_for(daemon.closed.wait(), 5)
    assert [bytes(said) for said in daemon.heard] == [HELLO + HINT]


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'"x"', {}, {"model": ""}, {"model": 5}, {"model": "m"}, {"model": "m", "block_hashes": "ff"},
     {"model": "m", "block_hashes": [1]}, {**BODY, "block_hashes": ["xyz"]}, {**BODY, "block_hashes": ["f"]},
     {**BODY, "compat_key": 5}, {**BODY, "deadline_ms": 0}, {**BODY, "deadline_ms": "soon"},
     {**BODY, "deadline_ms": None}],
)  # fmt: skip
async def test_c38_a_body_that_says_nothing_useful_is_400(body: Any) -> None:
    """No member of the wrong type gets further, and a body that is no object is no fault of ours."""
    assert (await asked(None, body)).status_code == 400


async def test_no_hashes_are_accepted_without_a_daemon() -> None:
    """Nothing to do is done."""
    answer = await asked(None, {"model": "m", "block_hashes": []})
    assert (answer.status_code, answer.json()) == (202, {"accepted": True, "n_keys": 0})


async def test_a_number_in_quotes_is_a_deadline(daemon: kvd.Daemon) -> None:
    """As the public server takes it."""
    assert (await asked(CacheDaemon(str(daemon.path)), {**BODY, "deadline_ms": "250"})).status_code == 202


async def test_without_a_daemon_hashes_are_503(tmp_path: Path) -> None:
    """None configured, or nobody at the socket."""
    assert (await asked(None, BODY)).status_code == 503
    assert (await asked(CacheDaemon(str(tmp_path / "nobody")), BODY)).status_code == 503


ARENA = kvd.frame({**kvd.ACK, "shared_arena": [1, 2, 3]})
REFUSED = kvd.frame({"op": "error", "code": "version", "message": "too new"})


NONSENSE = [b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x01\xc1"]


@pytest.mark.parametrize("greeting", [*NONSENSE, ARENA, REFUSED])
async def test_a_daemon_that_greets_otherwise_is_503(tmp_path: Path, greeting: bytes) -> None:
    """An empty frame, an endless one, nonsense, an arena nobody asked for, a refusal."""
    async with kvd.running(tmp_path / "kvd.sock", greeting) as daemon:
        assert (await asked(CacheDaemon(str(daemon.path)), BODY)).status_code == 503


async def test_c38_a_silent_daemon_is_not_waited_for_without_end(tmp_path: Path) -> None:
    """Connecting, greeting and sending have one limit of time."""
    async with kvd.running(tmp_path / "kvd.sock", None) as daemon:
        answer = await asked(CacheDaemon(str(daemon.path), seconds=0.05), BODY)
    assert answer.status_code == 503
    assert "time" in answer.json()["error"]["message"]
