"""Which headers go up to a worker and come down to a client (replica-router §1.11; rulings 8)."""

from __future__ import annotations

import gzip
import re

import pytest

from tests.gateway.conftest import Serve, Setup
from tests.support import raw
from tests.support.replies import JSON, SSE, answer, chunked, error, sse, unary, word, words

pytestmark = pytest.mark.asyncio(loop_scope="session")

SOUND = re.compile(r"[A-Za-z0-9._:-]{1,128}")
ADDED_UP = {"x-request-id"}


async def test_only_the_request_id_is_added_to_what_the_client_sent(solo: Setup) -> None:
    """A worker sees the client's headers in order and repeated as sent, its own Host, a length and a request id."""
    sent = [("X-One", "1"), ("Accept", "*/*"), ("X-One", "2"), ("User-Agent", "t/1")]
    await raw.post(solo.url, headers=sent)
    head = solo.u1.calls[0].head
    added = {"host", "content-length"} | ADDED_UP
    assert [(k.lower(), v) for k, v in head.pairs if k.lower() not in added] == [(k.lower(), v) for k, v in sent]
    assert head.version == "HTTP/1.1"


async def test_r004_a_compressed_answer_is_relayed_as_its_bytes(solo: Setup) -> None:
    """Content-Encoding and the compressed bytes stay together, and Content-Length is that of the bytes."""
    packed = gzip.compress(b'{"a":1}')
    solo.u1.always(answer(200, packed, [*JSON, ("Content-Encoding", "gzip")]))
    response = await raw.post(solo.url, headers={"Accept-Encoding": "gzip"})
    assert (response.get("content-encoding"), response.body) == ("gzip", packed)
    assert response.get("content-length") == str(len(packed))
    assert solo.u1.calls[0].get("accept-encoding") == "gzip"


async def test_b16_no_accept_encoding_is_added(solo: Setup) -> None:
    """A client that names no encoding does not get a worker asked for one."""
    await raw.post(solo.url)
    assert solo.u1.calls[0].head.all("accept-encoding") == []


async def test_r007_a_json_error_to_a_streaming_request_stays_json(solo: Setup) -> None:
    """A refusal of a stream keeps its JSON content type and has no SSE framing."""
    solo.u1.always(error(400, {"error": {"message": "no"}}))
    response = await raw.post(solo.url, body={"stream": True})
    assert response.status == 400
    assert (response.get("content-type") or "").startswith("application/json")
    assert not response.body.startswith(b"data:")


async def test_r014_a_stream_opts_out_of_buffering_and_compression(solo: Setup) -> None:
    """An SSE answer carries no-cache and X-Accel-Buffering, and neither an encoding nor a length."""
    solo.u1.always(sse([word("a")]))
    response = await raw.post(solo.url, body={"stream": True}, headers={"Accept-Encoding": "gzip, br"})
    assert (response.get("content-type") or "").startswith("text/event-stream")
    assert response.get("cache-control") == "no-cache"
    assert response.get("x-accel-buffering") == "no"
    assert response.get("content-encoding") is None
    assert response.get("content-length") is None


async def test_r014_a_workers_own_cache_headers_on_a_stream_stay(solo: Setup) -> None:
    """Cache-Control and X-Accel-Buffering of the worker are not overruled."""
    own = [*SSE, ("Cache-Control", "no-store"), ("X-Accel-Buffering", "yes")]
    solo.u1.always(chunked(words(1), fields=own))
    response = await raw.post(solo.url)
    assert (response.get("cache-control"), response.get("x-accel-buffering")) == ("no-store", "yes")


async def test_a_unary_answer_gets_no_stream_headers(solo: Setup) -> None:
    """Cache-Control and X-Accel-Buffering are added to SSE only."""
    response = await raw.post(solo.url)
    assert response.all("cache-control") + response.all("x-accel-buffering") == []


async def test_r017_hop_by_hop_headers_end_here(solo: Setup) -> None:
    """Connection, what it names, and the fixed hop-by-hop set are dropped; the rest passes."""
    await raw.post(solo.url, headers=[
        ("Connection", "keep-alive, X-Hop"), ("X-Hop", "1"), ("Keep-Alive", "timeout=9"), ("TE", "trailers"),
        ("Upgrade", "h2c"), ("Proxy-Authorization", "Basic c2VjcmV0"), ("Proxy-Connection", "keep-alive"),
        ("Proxy-Authenticate", "Basic"), ("Trailer", "X-T"), ("X-Keep", "yes")])
    head = solo.u1.calls[0].head
    assert head.all("x-keep") == ["yes"]
    assert not head.names & {"x-hop", "keep-alive", "te", "upgrade", "proxy-authorization", "proxy-connection",
                             "proxy-authenticate", "trailer"}
    assert head.all("connection") in ([], ["keep-alive"])


async def test_r017_every_connection_line_counts(solo: Setup) -> None:
    """Headers named in any of several Connection lines are dropped, in both directions."""
    lines = [("Connection", "X-Hop"), ("X-Hop", "1"), ("Connection", "keep-alive"), ("X-Keep", "yes")]
    solo.u1.always(answer(200, b"{}", [*JSON, *lines]))
    response = await raw.post(solo.url, headers=lines)
    assert response.get("x-keep") == solo.u1.calls[0].get("x-keep") == "yes"
    assert response.all("x-hop") + solo.u1.calls[0].head.all("x-hop") == []


async def test_r017_hop_by_hop_headers_of_an_answer_end_here(solo: Setup) -> None:
    """The same set is dropped on the way down."""
    fields = [*JSON, ("Connection", "keep-alive, X-Hop"), ("X-Hop", "1"), ("Keep-Alive", "timeout=5"),
              ("Proxy-Authenticate", "Basic"), ("Upgrade", "h2c"), ("X-Keep", "yes")]
    solo.u1.always(answer(200, b"{}", fields))
    response = await raw.post(solo.url)
    names = {name for name, _ in response.pairs}
    assert response.get("x-keep") == "yes"
    assert not names & {"x-hop", "keep-alive", "proxy-authenticate", "upgrade"}


async def test_r020_a_worker_sees_its_own_host(solo: Setup) -> None:
    """Host is the worker's address, whatever the client called us."""
    await raw.post(solo.url, headers={"Host": "public.example"})
    assert solo.u1.calls[0].get("host") == solo.u1.address


async def test_b20_repeated_answer_headers_stay_repeated(solo: Setup) -> None:
    """Every Set-Cookie of a worker reaches the client, in order."""
    repeated = [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("Via", "x"), ("Via", "y")]
    solo.u1.always(answer(200, b"{}", [*JSON, *repeated]))
    response = await raw.post(solo.url)
    assert response.all("set-cookie") == ["a=1", "b=2"]
    assert response.all("via") == ["x", "y"]


async def test_c14_request_id_trace_context_and_authorization_are_forwarded(solo: Setup) -> None:
    """The client's request id, traceparent, tracestate and key reach the worker; the id comes back."""
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    sent = {"X-Request-Id": "req-1", "traceparent": trace, "tracestate": "a=b", "Authorization": "Bearer sk-1"}
    response = await raw.post(solo.url, headers=sent)
    for name, value in sent.items():
        assert solo.u1.calls[0].get(name) == value
    assert response.get("x-request-id") == response.get("x-infera-request-id") == "req-1"


async def test_c14_a_request_without_an_id_gets_one_that_the_worker_sees(solo: Setup) -> None:
    """A minted request id goes both ways."""
    response = await raw.post(solo.url)
    assert SOUND.fullmatch(response.get("x-request-id") or "")
    assert solo.u1.calls[0].get("x-request-id") == response.get("x-request-id")


async def test_c16_a_header_that_names_a_worker_is_not_forwarded(solo: Setup) -> None:
    """X-Worker-Instance-Id is meant for the router and ends there."""
    response = await raw.post(solo.url, headers={"X-Worker-Instance-Id": "u9"})
    assert response.status == 200
    assert solo.u1.calls[0].head.all("x-worker-instance-id") == []


async def test_an_answer_names_its_worker_and_its_times(solo: Setup) -> None:
    """X-Infera-Worker and Server-Timing come with every relayed answer, the worker's claims replaced."""
    solo.u1.always(unary({}, [*JSON, ("X-Infera-Worker", "liar"), ("X-Session-Id", "liar"), ("X-Request-Id", "liar")]))
    response = await raw.post(solo.url, headers={"X-Session-Id": "s1"})
    assert response.get("x-infera-worker") == "u1"
    assert response.get("x-session-id") == "s1"
    assert response.get("x-request-id") not in (None, "liar")
    assert response.get("server-timing")


FORGED = ["a%0d%0aX-Evil: 1", "A" * 20_000, "\\u001b[31m", "a b", "é"]


@pytest.mark.parametrize("name", ["X-Request-Id", "X-Session-Id"])
@pytest.mark.parametrize("value", FORGED, ids=["escaped-crlf", "20kB", "escape", "space", "latin-1"])
async def test_r182_an_unsound_id_is_replaced(solo: Setup, name: str, value: str) -> None:
    """An id outside [A-Za-z0-9._:-]{1,128} is neither echoed nor forwarded as the request id."""
    response = await raw.post(solo.url, headers={name: value})
    assert response.status == 200
    assert response.get("x-evil") is None
    echoed = response.get(name)
    assert echoed
    assert SOUND.fullmatch(echoed)
    assert echoed != value
    if name == "X-Request-Id":
        assert solo.u1.calls[0].get(name) == echoed


CONTROL_BYTES = [b"a\x0bb", b"a\x7fb", b"a\r\n folded", b"a\x00b", b"a\rb"]


def with_session(value: bytes) -> bytes:
    """A request with these bytes as its session id."""
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Session-Id: " + value
            + b"\r\nContent-Length: 2\r\n\r\n{}")


@pytest.mark.parametrize("value", CONTROL_BYTES)
async def test_r182_control_bytes_in_a_header_are_refused(solo: Setup, value: bytes) -> None:
    """A header value with a control byte or a folded line is 400, and no worker hears of it."""
    async with await raw.Client.connect(solo.url) as client:
        await client.send(with_session(value))
        response = await client.response()
    assert response.status == 400
    assert solo.u1.calls == []


async def test_r182_log_lines_stay_single_and_short(serve: Serve) -> None:
    """Exactly one log line a request, naming the ids that were answered, also where its head was no good."""
    setup = await serve(1, process=True)
    answers = [await raw.post(setup.url, headers={"X-Request-Id": value, "X-Session-Id": value}) for value in FORGED]
    for value in CONTROL_BYTES:
        async with await raw.Client.connect(setup.url) as client:
            await client.send(with_session(value))
            answers.append(await client.response())
            assert answers[-1].status == 400
    await setup.server.stop()
    lines = setup.server.log
    assert [line for line in lines if len(line) > 2048 or re.search(r"[\x00-\x08\x0b-\x1f\x7f]", line)] == []
    asked = [line for line in lines if raw.CHAT in line]
    assert len(asked) == len(FORGED) + len(CONTROL_BYTES), lines
    for line, response in zip(asked, answers, strict=True):
        assert f" id={response.get('x-request-id')} session={response.get('x-session-id')} " in line
    assert not any(sign in line for line in lines for sign in ("X-Evil", "AAAA", "[31m", "folded"))


async def test_r181_the_admin_token_never_reaches_a_worker(serve: Serve) -> None:
    """A credential equal to the admin token is dropped on the way up and shown nowhere."""
    token = "tok-5d1f0c"
    setup = await serve(1, env={"INFERA_ADMIN_TOKEN": token}, process=True)
    for name, value in (("Authorization", f"Bearer {token}"), ("X-Api-Key", token), ("X-Inferact-Admin-Key", token)):
        assert (await raw.post(setup.url, headers={name: value})).status == 200
    await raw.post(setup.url, headers={"Authorization": "Bearer other"})
    seen = b"".join(bytes(c.raw) for c in setup.u1.connections)
    assert token.encode() not in seen
    assert setup.u1.calls[-1].get("authorization") == "Bearer other"
    for path in ("/health", "/replicas", "/metrics", "/v1/workers"):
        assert token.encode() not in (await raw.get(setup.url, path)).body
    await setup.server.stop()
    assert token not in "\n".join([*setup.server.log, *setup.server.out])


async def test_a_key_of_ours_is_consumed(serve: Serve) -> None:
    """A request without the client key is 401; the key itself stops here (rulings 6, 8)."""
    setup = await serve(1, env={"INFERA_API_KEY": "sk-ours"})
    refused = await raw.post(setup.url)
    assert refused.status == 401
    assert refused.get("x-session-id")
    assert setup.u1.calls == []
    assert (await raw.post(setup.url, headers={"Authorization": "Bearer sk-ours"})).status == 200
    assert setup.u1.calls[0].head.all("authorization") == []
