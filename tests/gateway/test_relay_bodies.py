"""Request bodies go up byte for byte, however they are framed (design.md §3; replica-router §1.11)."""

from __future__ import annotations

import asyncio
import hashlib
import re
from time import monotonic

import pytest

from tests.gateway.conftest import Serve, Setup
from tests.support import raw
from tests.support.replies import JSON, LAST, answer, chunk, head, unary
from tests.support.stub import Step

pytestmark = pytest.mark.asyncio(loop_scope="session")

SOUND = re.compile(r"[A-Za-z0-9._:-]{1,128}")
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
RELAYED = [CHAT, "/v1/completions", MESSAGES, "/v1/messages/count_tokens", "/v1/responses", "/v1/embeddings",
           "/v1/rerank", "/v1/score", "/v1/classify", "/v1/audio/transcriptions", "/v1/audio/speech", "/tokenize",
           "/detokenize"]
PRETTY = b'{\n  "model": "m",\n  "messages": [\n    {"role": "user", "content": "h\xc3\xa9"}\n  ]\n}\n'


@pytest.mark.parametrize("path", RELAYED)
async def test_every_relayed_route_passes_body_and_query_unchanged(solo: Setup, path: str) -> None:
    """The worker reads the same path, query string and bytes."""
    response = await raw.post(solo.url, f"{path}?a=1&b=%20c", PRETTY)
    seen = solo.u1.calls[0]
    assert response.status == 200
    assert (seen.head.method, seen.head.target, seen.body) == ("POST", f"{path}?a=1&b=%20c", PRETTY)


def in_chunks(body: bytes, size: int) -> bytes:
    """`body` in chunked framing."""
    return b"".join(chunk(body[at:at + size]) for at in range(0, len(body), size)) + LAST


@pytest.mark.parametrize("path", [MESSAGES, CHAT])
@pytest.mark.parametrize("size", [0, 1, 7, 1000])
async def test_r016_framing_is_rebuilt(solo: Setup, path: str, size: int) -> None:
    """A pretty-printed body arrives with exactly one framing header that fits it, sent whole or chunked."""
    async with await raw.Client.connect(solo.url) as client:
        if size:
            chunked_head = raw.request("POST", path, headers={"Transfer-Encoding": "chunked"})
            await client.send(chunked_head + in_chunks(PRETTY, size))
        else:
            await client.post(path, PRETTY)
        assert (await client.response()).status == 200
    seen = solo.u1.calls[0]
    framing = seen.head.all("content-length") + seen.head.all("transfer-encoding")
    assert framing in (["chunked"], [str(len(PRETTY))])
    assert seen.body == PRETTY


async def test_r019_eight_mebibytes_pass_and_health_goes_on(solo: Setup) -> None:
    """An 8 MiB body sent in 64 KiB writes arrives whole; /health answers within 500 ms meanwhile."""
    body = b'{"messages":[{"role":"user","content":"' + b"x" * (8 << 20) + b'"}]}'
    done = asyncio.Event()

    async def watch() -> float:
        worst = 0.0
        async with await raw.Client.connect(solo.url) as client:
            while not done.is_set():
                before = monotonic()
                await client.get("/health")
                worst = max(worst, monotonic() - before)
                await asyncio.sleep(0.02)
        return worst

    watching = asyncio.create_task(watch())
    async with await raw.Client.connect(solo.url) as client:
        await client.send(raw.request("POST", CHAT, headers={"Content-Length": str(len(body))}))
        for at in range(0, len(body), 1 << 16):
            await client.send(body[at:at + (1 << 16)])
        response = await client.response()
    done.set()
    assert response.status == 200
    assert solo.u1.calls[0].sha256 == hashlib.sha256(body).hexdigest()
    assert await watching < 1.0


MALFORMED = [b'{"messages": [', b"", b"[]", b'"hi"', b'{"x": "\xff\xfe"}', b'{"model": "m"}']


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize("body", MALFORMED, ids=["cut", "empty", "list", "text", "not-utf-8", "no-messages"])
async def test_r034_a_malformed_body_is_the_workers_to_judge(solo: Setup, path: str, body: bytes) -> None:
    """What is not a JSON object is forwarded unchanged, never a 5xx of the router's own."""
    solo.u1.always(answer(400, b'{"error":"bad"}'))
    response = await raw.post(solo.url, path, body)
    assert response.status == 400
    assert (solo.u1.calls[0].body, response.body) == (body, b'{"error":"bad"}')


async def test_r034_wrong_method_and_unknown_path(solo: Setup) -> None:
    """GET on a relayed route is 405 with Allow: POST; an unknown path 404, both as OpenAI error objects."""
    wrong = await raw.get(solo.url, CHAT)
    assert (wrong.status, wrong.get("allow")) == (405, "POST")
    unknown = await raw.post(solo.url, "/v1/nope" + "e" * 500)
    assert unknown.status == 404
    for response in (wrong, unknown):
        assert response.json()["error"]["message"]
    assert b"e" * 201 not in unknown.body
    assert solo.u1.calls == []


async def test_r034_errors_on_messages_speak_its_dialect(solo: Setup) -> None:
    """GET /v1/messages is 405 with an Anthropic error body."""
    response = await raw.get(solo.url, MESSAGES)
    assert (response.status, response.get("allow")) == (405, "POST")
    body = response.json()
    assert body["type"] == "error"
    assert body["error"]["type"]


ODD = [b"[1,2]", b'"x"', b'{"session_id":123}', b'{"session_id":null}', b'{"session_id":{"a":1}}',
       b'{"session_id":""}', b"\x00\xffnot json", b'{"a":1}']


async def test_r035_odd_bodies_pass_and_get_sessions_of_their_own(solo: Setup) -> None:
    """A body without a usable session id is forwarded as it is, each with a fresh and sound X-Session-Id."""
    ids = []
    for body in ODD:
        response = await raw.post(solo.url, body=body)
        assert response.status == 200
        ids.append(response.get("x-session-id") or "")
    assert [seen.body for seen in solo.u1.calls] == ODD
    assert all(SOUND.fullmatch(one) for one in ids)
    assert len(set(ids)) == len(ODD)


NESTED = [b'{"session_id":' + b"[" * 200_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000]


@pytest.mark.parametrize("body", NESTED, ids=["in-session-id", "objects", "lists"])
async def test_b34_absurd_nesting_counts_as_no_id(solo: Setup, body: bytes) -> None:
    """A body nested beyond any parser's patience is forwarded with a fresh session."""
    response = await raw.post(solo.url, body=body)
    assert response.status == 200
    assert solo.u1.calls[0].body == body
    assert SOUND.fullmatch(response.get("x-session-id") or "")


async def test_a_body_over_the_limit_is_413_and_goes_nowhere(serve: Serve) -> None:
    """A declared length over --max-body-size is refused at the head, a chunked body once it is over."""
    setup = await serve(1, "--max-body-size", "1000")
    async with await raw.Client.connect(setup.url) as client:
        await client.send(raw.request("POST", CHAT, headers={"Content-Length": "1001"}))
        declared = await client.response()
    async with await raw.Client.connect(setup.url) as client:
        await client.send(raw.request("POST", CHAT, headers={"Transfer-Encoding": "chunked"}) + chunk(b"x" * 1001))
        chunked = await client.response()
    for response in (declared, chunked):
        assert response.status == 413
        assert response.json()["error"]["message"]
        assert response.get("x-session-id")
    assert setup.u1.calls == []
    assert (await raw.post(setup.url, body=b"x" * 1000)).status == 200


async def test_expect_100_continue_is_answered_before_the_body(solo: Setup) -> None:
    """A client that waits for 100 gets it from us, and the worker never sees Expect."""
    async with await raw.Client.connect(solo.url) as client:
        await client.send(raw.request("POST", CHAT, headers={"Expect": "100-continue", "Content-Length": "2"}))
        client._expect("POST", CHAT)
        async with asyncio.timeout(5):
            assert (await client._event()).status_code == 100
        await client.send(b"{}")
        assert (await client.response()).status == 200
    seen = solo.u1.calls[0]
    assert seen.body == b"{}"
    assert seen.head.all("expect") == []


async def test_an_http_1_0_client_gets_an_answer_that_ends_with_the_connection(solo: Setup) -> None:
    """HTTP/1.0 gets no chunked framing: a stream ends when the connection closes."""
    solo.u1.always([head(200, [*JSON, ("Transfer-Encoding", "chunked")]), chunk(b"ab"), 0.05, chunk(b"cd"), LAST])
    async with await raw.Client.connect(solo.url) as client:
        await client.send(b"POST /v1/completions HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
        response = await client.response()
    assert response.status == 200
    assert response.all("transfer-encoding") == []
    assert response.body == b"abcd"
    assert response.whole


async def test_an_http_1_0_client_that_keeps_alive_may_go_on(solo: Setup) -> None:
    """A unary answer to HTTP/1.0 is either kept alive as asked or closed; it is whole in both cases."""
    async with await raw.Client.connect(solo.url) as client:
        await client.send(b"POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}")
        response = await client.response()
    assert (response.status, response.body, response.whole) == (200, b'{"ok": true}', True)


async def test_request_trailers_are_dropped(solo: Setup) -> None:
    """Trailers after a chunked request body do not reach the worker as headers or body."""
    async with await raw.Client.connect(solo.url) as client:
        await client.send(raw.request("POST", CHAT, headers={"Transfer-Encoding": "chunked"})
                          + chunk(b"{}") + b"0\r\nX-Trailer: 1\r\nAuthorization: Bearer x\r\n\r\n")
        assert (await client.response()).status == 200
    assert solo.u1.calls[0].body == b"{}"
    assert not {"x-trailer", "authorization"} & solo.u1.calls[0].head.names


async def test_answer_trailers_do_not_become_body(solo: Setup) -> None:
    """A worker's trailers end with its connection; the client's body is exact and whole."""
    solo.u1.always([head(200, [*JSON, ("Transfer-Encoding", "chunked")]), chunk(b"{}"), b"0\r\nX-Sum: 1\r\n\r\n"])
    response = await raw.post(solo.url)
    assert (response.body, response.whole) == (b"{}", True)


async def test_interim_answers_are_not_the_answer(solo: Setup) -> None:
    """100 and 103 from a worker do not end the exchange; the final answer is relayed."""
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    solo.u1.then([early, *unary({"n": 1})], [early, 0.05, *unary({"n": 2})])
    async with await raw.Client.connect(solo.url) as client:
        for n in (1, 2):
            await client.post()
            response = await client.response()
            assert (response.status, response.json()) == (200, {"n": n})


async def test_an_engine_may_answer_before_the_body_is_sent(solo: Setup) -> None:
    """A worker's early refusal reaches the client, and nothing is left open."""
    solo.u1.early = True
    solo.u1.always([*answer(413, b'{"error":"big"}', [*JSON, ("Connection", "close")]), Step.CLOSE])
    body = b"x" * (4 << 20)
    async with await raw.Client.connect(solo.url) as client:
        await client.send(raw.request("POST", CHAT, body))
        response = await client.response()
    assert (response.status, response.body) == (413, b'{"error":"big"}')
    await solo.server.settled()


async def test_pipelined_requests_are_answered_in_order(solo: Setup) -> None:
    """Two relayed requests and a /health sent in one write come back one after the other."""
    solo.u1.then([0.1, *unary({"n": 1})], unary({"n": 2}))
    async with await raw.Client.connect(solo.url) as client:
        await client.send(raw.request("POST", CHAT, b'{"n":1}') + raw.request("POST", CHAT, b'{"n":2}'))
        assert (await client.response()).json() == {"n": 1}
        assert (await client.response()).json() == {"n": 2}
        assert (await client.get("/livez")).status == 200
    assert [seen.body for seen in solo.u1.calls] == [b'{"n":1}', b'{"n":2}']


async def test_a_request_without_length_has_an_empty_body(solo: Setup) -> None:
    """POST without Content-Length is relayed with an empty body."""
    async with await raw.Client.connect(solo.url) as client:
        await client.send(raw.request("POST", CHAT, framing=False))
        assert (await client.response()).status == 200
    assert solo.u1.calls[0].body == b""
