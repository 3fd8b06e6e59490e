"""Streams are relayed as they come and never end well unless they did (replica-router §1.11; rulings 11)."""

from __future__ import annotations

import asyncio
import gzip
import json
from itertools import pairwise
from time import monotonic

import pytest

from tests.gateway.conftest import Serve, Setup
from tests.protocol.messages.said import assert_grammar, events, gathered
from tests.support import raw
from tests.support.replies import DONE, JSON, LAST, SSE, chunk, chunked, error, event, head, sse, word, words
from tests.support.stub import Step

pytestmark = pytest.mark.asyncio(loop_scope="session")

STREAM = {"stream": True}
MESSAGES = "/v1/messages"


def ended_visibly(response: raw.Response) -> bool:
    """The body broke off without its final chunk."""
    return response.status == 200 and not response.whole


def errors(response: raw.Response) -> list[dict[str, object]]:
    """The events that carry an `error` object."""
    parsed = [json.loads(one) for one in response.events() if one != "[DONE]"]
    return [one for one in parsed if "error" in one]


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422, 429, 500])
async def test_r005_a_refused_stream_keeps_status_and_body(solo: Setup, status: int) -> None:
    """An engine's refusal of a stream arrives with its status and the same bytes."""
    body = {"error": {"message": "too long", "type": "BadRequestError", "code": status}}
    solo.u1.always(error(status, body))
    response = await raw.post(solo.url, body={"stream": True, "max_tokens": 10**9})
    assert response.status == status
    assert response.body == json.dumps(body).encode()


async def test_c11_a_4xx_to_a_stream_is_returned_verbatim_without_a_retry(pair: Setup) -> None:
    """A stream refused with 4xx is answered by that one worker's bytes; nobody else is asked."""
    for worker in pair.workers:
        worker.always(error(400, {"error": {"message": "no"}, "by": worker.name}))
    response = await raw.post(pair.url, body=STREAM)
    assert response.status == 400
    assert response.json()["by"] == response.get("x-infera-worker")
    assert len(pair.u1.calls) + len(pair.u2.calls) == 1


async def test_r008_a_stream_cut_by_a_reset_is_visibly_broken(pair: Setup) -> None:
    """Both chunks, then one error event, then an end without the final chunk; nothing is replayed."""
    headers = await pair.pin(pair.u1)
    pieces = words(2, None)[:2]
    pair.u1.always([*chunked(pieces, end=False), 0.05, Step.RESET])
    response = await raw.post(pair.url, body=STREAM, headers=headers)
    assert response.body.startswith(b"".join(pieces))
    assert ended_visibly(response)
    assert len(errors(response)) == 1
    assert len(response.events()) == 3
    assert "[DONE]" not in response.events()
    assert (len(pair.u1.calls), len(pair.u2.calls)) == (1, 0)


async def test_r008_a_broken_stream_counts_one_failure(serve: Serve) -> None:
    """The request counter rises by one, as broken."""
    setup = await serve(1)
    setup.u1.always([*chunked(words(2)[:2], end=False), 0.02, Step.RESET])
    await raw.post(setup.url, body=STREAM)
    await setup.server.settled()
    broken = {k: v for k, v in (await setup.server.metrics()).items() if 'outcome="broken"' in k and "_total" in k}
    assert sum(broken.values()) == 1, broken


async def test_c17_the_error_of_a_broken_stream_is_an_error_object(solo: Setup) -> None:
    """The event's data is an OpenAI error object, on Messages an Anthropic one named `error`."""
    solo.u1.always([*chunked(words(2)[:2], end=False), 0.02, Step.RESET])
    openai = await raw.post(solo.url, body=STREAM)
    (found,) = errors(openai)
    assert isinstance(found["error"], dict)
    assert found["error"]["message"]
    assert found["error"]["type"]
    anthropic = await raw.post(solo.url, MESSAGES, STREAM)
    assert b"event: error\ndata: " in anthropic.body
    data = anthropic.body.rpartition(b"data: ")[2].partition(b"\n")[0]
    assert json.loads(data)["type"] == "error"
    assert ended_visibly(anthropic)


async def test_r008_inside_an_event_the_connection_is_only_aborted(solo: Setup) -> None:
    """A stream that dies inside an event gets no error event glued to it (rulings 11)."""
    half = event(word("x"))[:20]
    solo.u1.always([*chunked([event(word("a")), half], end=False), 0.02, Step.RESET])
    response = await raw.post(solo.url, body=STREAM)
    assert response.body == event(word("a")) + half
    assert ended_visibly(response)


async def test_r008_a_compressed_stream_is_only_aborted(solo: Setup) -> None:
    """No plain text is written into a compressed body (rulings 11)."""
    packed = gzip.compress(event(word("a")))
    solo.u1.always([*chunked([packed], end=False, fields=[*SSE, ("Content-Encoding", "gzip")]), 0.02, Step.RESET])
    response = await raw.post(solo.url, body=STREAM)
    assert response.body == packed
    assert ended_visibly(response)


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_a_cut_unary_answer_is_broken_for_the_client_too(solo: Setup, framing: str) -> None:
    """A JSON body that ends early is never completed or relabelled."""
    if framing == "length":
        solo.u1.always([head(200, [*JSON, ("Content-Length", "20")]) + b'{"half":', Step.CLOSE])
    else:
        solo.u1.always([head(200, [*JSON, ("Transfer-Encoding", "chunked")]) + chunk(b'{"half":'), Step.CLOSE])
    response = await raw.post(solo.url)
    assert response.body == b'{"half":'
    assert ended_visibly(response)


async def test_r010_a_stream_that_just_stops_gets_no_done(serve: Serve) -> None:
    """A chunked end without finish_reason or [DONE] is no success: nothing is invented and it counts as failed."""
    setup = await serve(1)
    pieces = words(3, None)[:3]
    setup.u1.always(chunked(pieces))
    response = await raw.post(setup.url, body=STREAM)
    assert "[DONE]" not in response.events()
    assert not any('"finish_reason": "' in one for one in response.events())
    assert response.body.startswith(b"".join(pieces))
    await setup.server.settled()
    counted = {k: v for k, v in (await setup.server.metrics()).items() if "outcome=" in k and "_total" in k and v}
    assert ['outcome="broken"' in name for name in counted] == [True], counted
    assert sum(counted.values()) == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", MESSAGES])
async def test_r011_characters_split_over_chunks_stay_whole(solo: Setup, path: str) -> None:
    """A body of characters of several bytes, written one byte at a time, arrives as the same bytes."""
    end = b'event: message_stop\ndata: {"type": "message_stop"}\n\n' if path == MESSAGES else DONE
    body = "event: content_block_delta\ndata: {\"text\": \"北京🌏é\"}\n\n".encode() + end
    solo.u1.always(chunked([bytes([one]) for one in body], gap=0.002))
    response = await raw.post(solo.url, path, STREAM)
    assert response.body == body
    assert "\ufffd" not in response.body.decode()


async def test_r013_chunks_arrive_when_they_are_written(solo: Setup) -> None:
    """Each chunk comes at once, before the next is written, and the gaps between chunks are the worker's."""
    arrived: list[float] = []
    written: list[float] = []
    gates = [asyncio.Event() for _ in range(4)]
    pieces = words(5)[:-1]
    later = [step for gate, piece in zip(gates, pieces[1:], strict=True) for step in (gate, chunk(piece))]
    solo.u1.always([head(200, [*SSE, ("Transfer-Encoding", "chunked")]), chunk(pieces[0]), *later, chunk(DONE), LAST])
    async with await raw.Client.connect(solo.url) as client:
        await client.post(body=STREAM)
        written.append((await solo.u1.called()).started)
        response = await client.head()
        body = client.body(within=2)                # a chunk held back until the next would never come
        for gate in [*gates, None]:
            assert await anext(body)
            arrived.append(monotonic())
            if gate is not None:
                await asyncio.sleep(0.2)            # the worker's pace
                written.append(monotonic())
                gate.set()
        await client.rest()
    assert (response.body, response.whole) == (b"".join(words(5)), True)
    assert max(came - left for came, left in zip(arrived, written, strict=True)) < 0.3
    assert all(0.1 <= later - earlier <= 0.5 for earlier, later in pairwise(arrived)), arrived


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", MESSAGES])
async def test_r029_usage_chunks_and_comments_pass_unchanged(solo: Setup, path: str) -> None:
    """Events with empty choices, comments and usage arrive in order and byte for byte."""
    usage = {"id": "c1", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 3}}
    end = b'event: message_stop\ndata: {"type": "message_stop"}\n\n' if path == MESSAGES else DONE
    pieces = [event({"id": "c1", "choices": []}), b": ping\n\n", *words(3)[:-1], event(usage), end]
    solo.u1.always(chunked(pieces))
    response = await raw.post(solo.url, path, {"stream": True, "stream_options": {"include_usage": True}})
    assert response.status == 200
    assert (response.body, response.whole) == (b"".join(pieces), True)


async def test_r029_usage_chunks_and_comments_are_translated_for_messages(serve: Serve) -> None:
    """Of the same chat stream a Messages client sees one start, the three pieces, and the tokens of the usage chunk."""
    setup = await serve(1, "--anthropic", "translate")
    usage = {"id": "c1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 7}}
    pieces = [event({"id": "c1", "choices": []}), b": ping\n\n", *words(3, None)[:-1], event(word("", "stop")),
              event(usage), DONE]
    setup.u1.always(chunked(pieces))
    asked = {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}], **STREAM}
    response = await raw.post(setup.url, MESSAGES, asked)
    assert (response.status, response.whole) == (200, True)
    seen = events(response.body)
    assert_grammar(seen)
    assert [one["type"] for one in seen].count("message_start") == 1
    assert [one["delta"]["text"] for one in seen if one["type"] == "content_block_delta"] == ["w0", "w1", "w2"]
    assert [one["usage"]["output_tokens"] for one in seen if one["type"] == "message_delta"] == [7]
    assert gathered(seen)["stop_reason"] == "end_turn"


@pytest.mark.parametrize("reason", ["abort", "cancelled"])
async def test_r109_an_engines_abort_is_relayed_and_counts_as_failed(serve: Serve, reason: str) -> None:
    """A stream that ends with finish_reason abort passes unchanged and is counted as failed."""
    setup = await serve(1)
    pieces = [*words(2, None)[:2], event(word("", reason)), DONE]
    setup.u1.always(chunked(pieces))
    response = await raw.post(setup.url, body=STREAM)
    assert (response.body, response.whole) == (b"".join(pieces), True)
    await setup.server.settled()
    samples = await setup.server.metrics()
    assert sum(v for k, v in samples.items() if 'outcome="broken"' in k and "_total" in k) == 1


async def test_a_slow_client_slows_its_worker_down(solo: Setup) -> None:
    """With a client that does not read, the worker is paused after a bounded amount; all of it arrives in the end."""
    total, size = 48 << 20, 1 << 18
    pieces = [b"x" * size] * (total // size - 1) + [b"x" * (size - len(DONE) - 1) + b"\n" + DONE]
    solo.u1.always(chunked(pieces, fields=SSE))
    async with await raw.Client.connect(solo.url, receive=8192) as client:
        await client.post(body=STREAM)
        seen = await solo.u1.called()
        response = await client.head()
        before = -1
        while before != seen.sent:                  # until the worker stands still
            before = seen.sent
            await asyncio.sleep(0.3)
        assert before < total / 2
        async with asyncio.timeout(60):
            async for _ in client.body():
                pass
    assert response.whole
    assert len(response.body) == total


async def test_until_close_answers_end_with_the_connection(solo: Setup) -> None:
    """A body that a worker ends by closing is complete for the client."""
    solo.u1.always([head(200, JSON), b'{"a":', 0.05, b"1}", Step.CLOSE])
    response = await raw.post(solo.url)
    assert (response.status, response.body, response.whole) == (200, b'{"a":1}', True)


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body_leave_the_connection_usable(solo: Setup, status: int) -> None:
    """204 and 304 end at their head, and the next request is served on the same client connection."""
    solo.u1.then([head(status)], [head(status)])
    async with await raw.Client.connect(solo.url) as client:
        for _ in range(2):
            await client.post()
            response = await client.response()
            assert (response.status, response.body) == (status, b"")
        await client.post()
        assert (await client.response()).status == 200


async def test_a_silent_stream_is_kept_alive_with_comments(serve: Serve) -> None:
    """--stream-keepalive writes an SSE comment after that much silence, between events only."""
    setup = await serve(1, "--stream-keepalive", "0.2")
    pieces = words(2)
    setup.u1.always([*chunked(pieces[:1], end=False), 0.7, *(chunk(one) for one in pieces[1:]), b"0\r\n\r\n"])
    response = await raw.post(setup.url, body=STREAM)
    assert response.whole
    without = b"\n\n".join(b for b in response.body.split(b"\n\n") if not b.startswith(b":"))
    assert without == b"".join(pieces)
    assert response.body.count(b"\n\n") > len(pieces)


async def test_a_stream_that_is_silent_from_its_head_on_is_kept_alive_too(serve: Serve) -> None:
    """The comment follows the answer's head, it does not come before it."""
    setup = await serve(1, "--stream-keepalive", "0.2")
    pieces = words(1)
    setup.u1.always([head(200, [*SSE, ("Transfer-Encoding", "chunked")]), 0.7, *(chunk(one) for one in pieces), LAST])
    response = await raw.post(setup.url, body=STREAM)
    assert response.whole
    assert response.body.startswith(b":")
    assert response.body.endswith(b"".join(pieces))


async def test_c17_no_traceback_and_no_internals_reach_the_client(solo: Setup) -> None:
    """Error texts are ours: no exception names, file names or addresses of sockets (S47)."""
    solo.u1.always([*sse([word("a")], done=False, end=False), 0.02, Step.RESET])
    response = await raw.post(solo.url, body=STREAM)
    for leak in (b"Traceback", b"Error(", b".py", b"ConnectionReset", b"Errno"):
        assert leak not in response.body
