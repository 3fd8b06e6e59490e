"""Requests that offer to change to another protocol are answered as if they had not (RFC 9110 §7.8)."""

from __future__ import annotations

import logging

import pytest

from tests.gateway.conftest import Serve, Setup
from tests.support import raw

pytestmark = pytest.mark.asyncio(loop_scope="session")

OFFER = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAARAAAAAAAIAAAAA"}
BODY = b'{"model":"m","messages":[]}'


async def test_an_offered_upgrade_does_not_cost_the_body(solo: Setup) -> None:
    """Java's client offers h2c with its POST: the worker gets the whole body and nothing of the offer."""
    response = await raw.post(solo.url, body=BODY, headers=OFFER)
    assert response.status == 200
    [call] = solo.u1.calls
    assert call.body == BODY
    assert not {"upgrade", "http2-settings"} & {name.lower() for name, _ in call.head.pairs}


async def test_an_offered_upgrade_keeps_the_connection(solo: Setup) -> None:
    """Requests that follow on the connection are answered, pieces and chunked bodies included."""
    head, chunks = raw.request("POST", raw.CHAT, BODY, OFFER).split(b"\r\n\r\n")[0], b"1b\r\n" + BODY + b"\r\n0\r\n\r\n"
    async with await raw.Client.connect(solo.url) as client:
        for pieces in ([head[:40], head[40:] + b"\r\n\r\n" + BODY[:5], BODY[5:]],
                       [head.replace(b"Content-Length: 27", b"Transfer-Encoding: chunked") + b"\r\n\r\n" + chunks]):
            for piece in pieces:
                await client.send(piece)
            assert (await client.response()).status == 200
    assert [call.body for call in solo.u1.calls] == [BODY, BODY]


async def test_offers_to_the_control_plane_are_answered_as_plain_requests(solo: Setup) -> None:
    """A WebSocket handshake to a plain route gets that route's answer, not a broken connection."""
    async with await raw.Client.connect(solo.url) as client:
        first = await client.get("/livez", {"Connection": "Upgrade", "Upgrade": "websocket"})
        second = await client.get("/livez")
    assert (first.status, second.status) == (200, 200)


async def test_pipelined_offers_without_end_are_refused(solo: Setup) -> None:
    """A client that sends nothing but offers gets a few answers, then 400, and is let go."""
    async with await raw.Client.connect(solo.url) as client:
        await client.send(raw.request("GET", "/livez", headers=OFFER, framing=False) * 500)
        said = await client.reader.read()
    assert b"HTTP/1.1 200" in said
    assert said.count(b"HTTP/1.1 ") < 20


@pytest.mark.parametrize("line", ["CONNECT worker:80", "GET http://[/x", "POST http://[/v1/completions"])
async def test_a_target_that_is_no_path_is_400_and_no_traceback(
    serve: Serve, caplog: pytest.LogCaptureFixture, line: str
) -> None:
    """CONNECT and targets that cannot be read are the client's fault: 400, and nothing is logged as ours."""
    setup = await serve(1)
    async with await raw.Client.connect(setup.url) as client:
        with caplog.at_level(logging.WARNING):
            await client.send(f"{line} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
            said = await client.reader.read()
    assert said.startswith(b"HTTP/1.1 400 ")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
