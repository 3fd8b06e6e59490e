"""Sessions over the wire: who is recognised, where they go, what comes back (replica-router §1.10; rulings 10)."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from tests.gateway.conftest import Serve, Setup
from tests.support import raw
from tests.support.replies import chunked, sse, unary, word, words
from tests.support.stub import Reply, Step

pytestmark = pytest.mark.asyncio(loop_scope="session")

SOUND = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
@pytest.mark.parametrize(("headers", "body", "expected"), [
    ({"X-Session-Id": "h1"}, {"session_id": "b1"}, "h1"),
    ({}, {"session_id": "b1"}, "b1"),
    ({"X-Session-Id": "h" * 129}, {"session_id": "b1"}, None),
    ({"X-Session-Id": "a b"}, {}, None),
    ({"X-Session-Id": "h" * 128}, {}, "h" * 128),
    ({"X-Session-Id": " \th1 \t"}, {}, "h1"),
    ({"x-session-id": "h1"}, {}, "h1"),
    ({"X-Session-Id": ""}, {}, None),
], ids=["header-wins", "body", "too-long", "space", "longest", "blanks-around", "lower-case", "empty"])
async def test_r071_session_identity(
    solo: Setup, stream: bool, headers: dict[str, str], body: dict[str, object], expected: str | None
) -> None:
    """The header wins over the body, an unusable header gives a fresh id; one X-Session-Id comes back, never empty."""
    if stream:
        solo.u1.always(sse([word("a", "stop")]))
    response = await raw.post(solo.url, body={**body, "stream": stream}, headers=headers)
    assert response.status == 200
    given = response.get("x-session-id")
    assert given
    if expected is not None:
        assert given == expected
    else:
        assert SOUND.fullmatch(given)
        assert given not in (*headers.values(), "b1")


async def test_a1_an_id_with_a_trailing_newline_is_fresh(solo: Setup) -> None:
    """The pattern is anchored: `id\\n` in a body is not a sound id."""
    response = await raw.post(solo.url, body={"session_id": "abc\n"})
    assert SOUND.fullmatch(response.get("x-session-id") or "")
    assert response.get("x-session-id") != "abc"


async def test_a_client_that_says_our_id_again_stays_where_it_was(serve: Serve) -> None:
    """The X-Session-Id of an answer names the session from then on, whatever else comes in between."""
    setup = await serve(2)
    first = await raw.post(setup.url)
    given = first.get("x-session-id") or ""
    for _ in range(3):
        await raw.post(setup.url)
    again = [await raw.post(setup.url, headers={"X-Session-Id": given}) for _ in range(3)]
    assert {answer.get("x-infera-worker") for answer in again} == {first.get("x-infera-worker")}
    assert {answer.get("x-session-id") for answer in again} == {given}


async def test_an_unsound_or_minted_session_is_never_sent_up(solo: Setup) -> None:
    """A worker sees a client's sound X-Session-Id and nothing else of that name (rulings 10)."""
    await raw.post(solo.url, headers={"X-Session-Id": "good"})
    await raw.post(solo.url, headers={"X-Session-Id": "b a d"})
    await raw.post(solo.url)
    assert [seen.head.all("x-session-id") for seen in solo.u1.calls] == [["good"], [], []]


async def test_a2_every_answer_carries_a_session_errors_included(serve: Serve) -> None:
    """200, 401, 405, 413, 429, 502, 503 and 504 have exactly one X-Session-Id, the given one, or one that was made."""
    flags = ("--request-timeout", "0.4", "--max-body-size", "100", "--max-inflight", "1", "--health-interval", "60")
    setup = await serve(1, *flags, env={"INFERA_API_KEY": "k"})
    key, named = {"Authorization": "Bearer k"}, {"X-Session-Id": "s1"}

    async def ask(status: int, headers: dict[str, str], body: bytes = b"{}", method: str = "POST") -> None:
        for more in (named, {}):
            async with await raw.Client.connect(setup.url) as client:
                await client.send(raw.request(method, raw.CHAT, body, {**headers, **more}))
                response = await client.response(method=method)
            given = response.get("x-session-id") or ""
            assert response.status == status
            assert given == "s1" if more else SOUND.fullmatch(given) and given != "s1"

    await ask(200, key)
    await ask(401, {})
    for method in ("GET", "PUT", "DELETE"):
        await ask(405, key, method=method)
    await ask(413, key, b"x" * 101)
    setup.u1.always([Step.HANG])
    await ask(504, key)
    release = asyncio.Event()
    setup.u1.always([release, *unary({})])
    running = asyncio.create_task(raw.post(setup.url, headers=key))
    await setup.u1.called(5)
    await ask(429, key)
    release.set()
    assert (await running).status == 200
    await setup.u1.die()
    response = await raw.post(setup.url, headers={**key, **named})
    assert (response.status, response.get("x-session-id")) == (502, "s1")
    await ask(503, key)


UNREADABLE = {
    "too-large": (431, b"X-Big: " + b"a" * (256 << 10)), "too-many": (431, b"X-N: 1\r\n" * 5000 + b"X-N: 1"),
    "no-field": (400, b"nonsense"), "folded": (400, b"X-A: 1\r\n folded"),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNREADABLE)
async def test_a2_a_head_that_is_not_read_gets_a_fresh_session(solo: Setup, kind: str) -> None:
    """431, and 400 for what is no HTTP: the session in such a head is not looked for, so the id is a new one."""
    status, field = UNREADABLE[kind]
    async with await raw.Client.connect(solo.url) as client:
        await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Session-Id: s1\r\n" + field
                          + b"\r\nContent-Length: 2\r\n\r\n{}")
        response = await client.response()
    assert response.status == status
    for name in ("x-session-id", "x-request-id"):
        assert SOUND.fullmatch(response.get(name) or "")
    assert response.get("x-session-id") != "s1"


async def test_a2_a_head_that_is_read_and_refused_keeps_its_session(solo: Setup) -> None:
    """400 for a transfer coding that is not understood names the session and the request that were given."""
    fields = {"X-Session-Id": "s1", "X-Request-Id": "r1", "Transfer-Encoding": "gzip"}
    response = await raw.post(solo.url, headers=fields)
    assert (response.status, response.get("x-session-id"), response.get("x-request-id")) == (400, "s1", "r1")


async def hold(
    setup: Setup, session: dict[str, str], count: int, release: asyncio.Event
) -> list[asyncio.Task[raw.Response]]:
    """Keep `count` requests of a session open on the first worker."""
    before = len(setup.u1.calls)
    waiting: Reply = [release, *unary({})]
    setup.u1.then(*[waiting] * count)
    tasks = [asyncio.create_task(raw.post(setup.url, headers=session)) for _ in range(count)]
    await setup.u1.called(before + count)
    return tasks


@pytest.mark.parametrize(("load", "goes_to"), [(8, "u1"), (9, "u2")], ids=["a", "b"])
async def test_r067_affinity_slack_boundary(serve: Serve, load: int, goes_to: str) -> None:
    """With slack 8 a pinned worker may carry 8 more than the least loaded one; at 9 the session moves."""
    setup = await serve(2, "--affinity-slack", "8")
    session = await setup.pin(setup.u1)
    release = asyncio.Event()
    tasks = await hold(setup, session, load, release)
    assert (await raw.post(setup.url, headers=session)).get("x-infera-worker") == goes_to
    release.set()
    await asyncio.gather(*tasks)


async def test_r067_slack_is_relative_to_the_least_loaded(serve: Serve) -> None:
    """Case c: 12 against 7 is within slack 8, whatever the absolute numbers are."""
    setup = await serve(2, "--affinity-slack", "8")
    ours, theirs = await setup.pin(setup.u1), await setup.pin(setup.u2)
    release = asyncio.Event()
    waiting: Reply = [release, *unary({})]
    setup.u2.then(*[waiting] * 7)
    others = [asyncio.create_task(raw.post(setup.url, headers=theirs)) for _ in range(7)]
    await setup.u2.called(7)
    tasks = await hold(setup, ours, 8, release)
    tasks += await hold(setup, ours, 4, release)
    assert (await raw.post(setup.url, headers=ours)).get("x-infera-worker") == "u1"
    release.set()
    await asyncio.gather(*tasks, *others)


async def test_r067_slack_zero_switches_affinity_off(serve: Serve) -> None:
    """Case d: with slack 0 twenty requests of one session reach both workers."""
    setup = await serve(2, "--affinity-slack", "0")
    for _ in range(20):
        await raw.post(setup.url, headers={"X-Session-Id": "s"})
    assert (len(setup.u1.calls), len(setup.u2.calls)) == (10, 10)


async def test_r070_b31_a_pin_outlives_a_stream_longer_than_its_ttl(serve: Serve) -> None:
    """Inactivity counts from the end of a generation, so a long stream does not lose its own pin."""
    setup = await serve(2, "--session-ttl", "0.8")
    session = await setup.pin(setup.u1)
    setup.u1.then(chunked(words(12), gap=0.12))
    assert (await raw.post(setup.url, body={"stream": True}, headers=session)).whole
    await asyncio.sleep(0.1)
    assert (await raw.post(setup.url, headers=session)).get("x-infera-worker") == "u1"


async def test_a_session_expires_after_its_ttl(serve: Serve) -> None:
    """After more than --session-ttl of silence the next turn is routed afresh: to whoever has less to do."""
    setup = await serve(2, "--session-ttl", "0.3")
    session, busy = await setup.pin(setup.u1), await setup.pin(setup.u1)
    release = asyncio.Event()
    tasks = await hold(setup, busy, 1, release)
    assert (await raw.post(setup.url, headers=session)).get("x-infera-worker") == "u1"
    hits = (await setup.server.health())["affinity_hits"]
    await asyncio.sleep(0.5)
    assert (await raw.post(setup.url, headers=session)).get("x-infera-worker") == "u2"
    assert (await setup.server.health())["affinity_hits"] == hits
    release.set()
    await asyncio.gather(*tasks)


async def test_sessions_are_spread_and_then_stay(serve: Serve) -> None:
    """New sessions go round the workers; their later turns follow their pins."""
    setup = await serve(4)
    first = {f"s{n}": (await raw.post(setup.url, headers={"X-Session-Id": f"s{n}"})).get("x-infera-worker")
             for n in range(8)}
    assert [first[f"s{n}"] for n in range(8)] == ["u1", "u2", "u3", "u4"] * 2
    for name, worker in first.items():
        assert (await raw.post(setup.url, headers={"X-Session-Id": name})).get("x-infera-worker") == worker


async def test_of_a_model_name_only_the_beginning_is_kept(serve: Serve) -> None:
    """A model name of 100 KB reaches the worker whole, and takes no more than 257 characters in our records."""
    setup = await serve(1)
    body = {"model": "m" * 100_000}
    assert (await raw.post(setup.url, body=body)).status == 200
    assert json.loads(setup.u1.calls[0].body) == body
    async with await raw.Client.connect(setup.url) as client:
        records = (await client.get("/v1/admin/requests")).json()
    assert [record["model"] for record in records["requests"]] == ["m" * 256 + "…"]
