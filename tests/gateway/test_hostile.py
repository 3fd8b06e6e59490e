"""Clients and workers that never come to an end, and requests that no one can read: bounded, answered, counted."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from tests.gateway.conftest import Serve, Setup
from tests.support import raw
from tests.support.replies import unary

pytestmark = pytest.mark.asyncio(loop_scope="session")

SMALL = ("--max-header-size", "2000", "--max-body-size", "100000")
CHUNKED = b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "a trailer field": b"0\r\nX-T: " + b"b" * 200_000,
    "trailer fields": b"0\r\n" + b"X-T: b\r\n" * 30_000,
    "a chunk extension": b"2;" + b"x" * 200_000,
}


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged as our own fault."""
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


async def flooded(setup: Setup, path: bytes, rest: bytes) -> raw.Response:
    """The answer to a chunked request that begins soundly and goes on with `rest`, in pieces."""
    async with await raw.Client.connect(setup.url) as client:
        await client.send(b"POST " + path + CHUNKED + b"2\r\n{}\r\n")
        with contextlib.suppress(ConnectionError):
            for start in range(0, len(rest), 10_000):
                await client.send(rest[start : start + 10_000])
                await asyncio.sleep(0)
        return await client.response()


@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/admin/explain"])
@pytest.mark.parametrize("kind", ENDLESS)
async def test_what_is_no_body_and_has_no_end_is_refused(serve: Serve, path: bytes, kind: str) -> None:
    """Behind a sound body: 431 once it is over the limit of heads, on relayed routes and on others; no worker hears."""
    setup = await serve(1, *SMALL)
    response = await flooded(setup, path, ENDLESS[kind])
    assert response.status == 431
    assert setup.u1.calls == []


async def test_a_body_in_many_small_chunks_is_no_flood(serve: Serve) -> None:
    """Four times the limit of heads in size lines and one-byte chunks is a body like any other."""
    setup = await serve(1, *SMALL)
    body = b'{"model": "m"' + b" " * 1500 + b"}"
    async with await raw.Client.connect(setup.url) as client:
        await client.send(b"POST /v1/chat/completions" + CHUNKED)
        for byte in body:
            await client.send(b"1;x=y\r\n%c\r\n" % byte)
        await client.send(b"0\r\nX-T: b\r\n\r\n")
        assert (await client.response()).status == 200
    assert setup.u1.calls[0].body == body


@pytest.mark.parametrize("rest", [b"X-Long: " + b"b" * 2_000_000, b"X-Many: b\r\n" * 200_000])
async def test_a_worker_whose_head_does_not_end_is_broken_off(serve: Serve, rest: bytes) -> None:
    """502 while the head is still coming; the next request is served."""
    setup = await serve(1, "--request-max-retries", "0", "--breaker-failure-threshold", "0")
    pieces = [rest[start : start + 100_000] for start in range(0, len(rest), 100_000)]
    setup.u1.then([b"HTTP/1.1 200 OK\r\n", *pieces, *unary({})])
    assert (await raw.post(setup.url)).status == 502
    assert (await raw.post(setup.url)).status == 200


TWICE = {
    "an unknown coding": b"Host: x\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "no host and a bad chunk": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "no host and more behind it": b"Content-Length: 2\r\n\r\n{}\x00\x01garbage",
}


@pytest.mark.parametrize("kind", TWICE)
async def test_a_request_that_is_wrong_twice_is_refused_once(
    serve: Serve, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One 400 and the end of the connection, without a word in the log but its own line."""
    setup = await serve(1)
    async with await raw.Client.connect(setup.url) as client:
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\n" + TWICE[kind])
        response = await client.response()
        assert await client.reader.read() == b""
    assert (response.status, response.get("connection")) == (400, "close")
    assert errors(caplog) == []


BAD_BODIES = [(b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "not valid HTTP/1.1"),
              (b"Transfer-Encoding: identity\r\n\r\n{}", "No Transfer-Encoding but chunked")]


@pytest.mark.parametrize(("rest", "why"), BAD_BODIES)
async def test_a_bad_body_of_the_control_plane_is_answered(
    serve: Serve, rest: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """400 in a sentence, and no traceback: the route was waiting for the rest."""
    setup = await serve(1)
    async with await raw.Client.connect(setup.url) as client:
        await client.send(b"POST /v1/admin/explain HTTP/1.1\r\nHost: localhost\r\n" + rest)
        response = await client.response()
    assert response.status == 400
    assert why in response.json()["error"]["message"]
    assert errors(caplog) == []


async def test_a_client_of_the_control_plane_may_leave_in_the_middle(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Half a body and then nobody: nothing is logged; a length over the limit is 413 before anything was read."""
    setup = await serve(1, *SMALL)
    head = b"POST /v1/admin/explain HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
    async with await raw.Client.connect(setup.url) as client:
        await client.send(head + b"99\r\n\r\n{")
        await asyncio.sleep(0.05)
    async with await raw.Client.connect(setup.url) as client:
        await client.send(head + b"99999999999\r\n\r\n")
        assert (await client.response()).status == 413
    await asyncio.sleep(0.05)
    assert errors(caplog) == []


async def test_what_is_refused_unread_is_counted_and_on_record(serve: Serve) -> None:
    """431 and 400 of heads that nobody read are in the counters and in the journal, with the ids that were answered."""
    setup = await serve(1, *SMALL)
    large = await raw.post(setup.url, headers={"X-Long": "b" * 3000})
    async with await raw.Client.connect(setup.url) as client:
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\n\r\n")
        bad = await client.response()
    assert (large.status, bad.status) == (431, 400)
    samples = await setup.server.metrics()
    assert samples['infera_requests_rejected_total{reason="headers_too_large"}'] == 1
    assert samples['infera_requests_rejected_total{reason="bad_request"}'] == 1
    listed = (await raw.get(setup.url, "/v1/admin/requests")).json()["requests"]
    told = [(one["status"], one["id"]) for one in listed]
    assert told == [(400, bad.get("x-request-id")), (431, large.get("x-request-id"))]


async def test_an_old_client_is_not_told_to_continue(serve: Serve) -> None:
    """HTTP/1.0 has no 100: its Expect is passed over, and the body that comes anyway is served (RFC 9110 §10.1.1)."""
    setup = await serve(1)
    async with await raw.Client.connect(setup.url) as client:
        fields = b"Host: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        await client.send(b"POST /v1/chat/completions HTTP/1.0\r\n" + fields)
        await asyncio.sleep(0.05)
        await client.send(b"{}")
        response = await client.response()
    assert (response.status, response.informational) == (200, [])


async def test_clients_that_leave_while_a_connection_is_made_leave_nothing(serve: Serve) -> None:
    """Four hundred that send and go at once: no connection to the worker counts as busy afterwards."""
    setup = await serve(1, process=True)
    request = raw.request("POST", raw.CHAT, b"{}")
    port = int(setup.url.rpartition(":")[2])
    for _ in range(400):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(request)
    async with asyncio.timeout(10):
        while (await setup.server.metrics())['infera_upstream_connections{worker_id="u1",state="busy"}']:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (await raw.post(setup.url)).status == 200


async def test_a_session_id_that_cannot_be_used_is_logged_by_its_length(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """A header with a blank and an id of 129 characters in the body: two warnings that do not name them."""
    setup = await serve(1)
    await raw.post(setup.url, headers={"X-Session-Id": "a secret one"})
    await raw.post(setup.url, body={"session_id": "s" * 129})
    said = [record.getMessage() for record in caplog.records if "session id" in record.getMessage()]
    assert [line.partition(" cannot")[0] for line in said] == ["a session id of 12 bytes", "a session id of 129 bytes"]
    assert "secret" not in caplog.text


async def test_a_question_that_is_no_wrapped_request_is_told_so(serve: Serve) -> None:
    """The body of a request sent to explain as it is: 400 and the form that is wanted, no decision for another one."""
    setup = await serve(1)
    response = await raw.post(setup.url, "/v1/admin/explain", body={"model": "zz"})
    assert response.status == 400
    assert '{"path": "/v1/chat/completions"' in response.json()["error"]["message"]


UNCLEAR = {
    "no host": b"GET /livez HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "chunks in HTTP/1.0": b"GET /livez HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("said", UNCLEAR)
async def test_a_head_that_can_be_read_in_two_ways_is_refused_everywhere(solo: Setup, said: str) -> None:
    """The control plane is as strict as the relay: 400, and the connection ends."""
    async with await raw.Client.connect(solo.url) as client:
        await client.send(UNCLEAR[said])
        assert (await client.response()).status == 400
        await client.ended()


LOOKALIKES = {"/v1/chat%2fcompletions": "/v1/chat%2fcompletions", "/v1/chat/completions#a": "/v1/chat/completions%23a"}


@pytest.mark.parametrize("target", LOOKALIKES)
async def test_a_path_that_only_resembles_a_relayed_one_is_named_as_it_was_sent(solo: Setup, target: str) -> None:
    """404 for what was asked, which is another path than the one that is served."""
    response = await raw.post(solo.url, target)
    assert response.status == 404
    assert f"There is no {LOOKALIKES[target]} here" in response.json()["error"]["message"]
    assert solo.u1.calls == []
