"""Messages requests in front of engines that speak chat only, on the wire."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.gateway.conftest import Serve, Setup
from tests.protocol.messages.said import DONE, assert_grammar, chunk, events, gathered, text, types, usage
from tests.support import raw
from tests.support.replies import JSON, SSE, answer, chunked, error, event, head, unary
from tests.support.stub import Step

MESSAGES = "/v1/messages"
pytestmark = pytest.mark.asyncio(loop_scope="session")
LONG = [*JSON, ("Content-Length", "100")]
HELLO = {"role": "assistant", "content": "hello"}
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}
COMPLETION = {
    "id": "chatcmpl-1", "model": "m1", "usage": USAGE,
    "choices": [{"index": 0, "message": HELLO, "finish_reason": "stop", "stop_reason": None}],
}  # fmt: skip


def body(**members: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}], **members}


def stream(*values: Any, done: bool = True, **more: Any) -> list[Any]:
    pieces = [event(value) for value in values]
    return chunked([*pieces, *([DONE] if done else [])], **more)


async def translating(serve: Serve, count: int = 1, *flags: str) -> Setup:
    """A server that always translates; no worker is asked what it speaks."""
    return await serve(count, "--anthropic", "translate", "--connect-timeout", "2", *flags)


async def test_a_message_is_asked_of_the_engine_as_a_chat(serve: Serve) -> None:
    """The engine reads a chat body on the chat route, the client gets a message named after its request."""
    setup = await translating(serve)
    setup.u1.always(unary(COMPLETION))
    response = await raw.post(setup.url, MESSAGES + "?beta=true", body(system="A"), {"X-Request-Id": "r1"})
    call = setup.u1.calls[0]
    assert call.head.target == "/v1/chat/completions"
    assert json.loads(call.body)["messages"] == [{"role": "system", "content": "A"}, {"role": "user", "content": "hi"}]
    assert response.json() == {
        "id": "msg_r1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "hello"}], "stop_sequence": None,
        "usage": {
            "input_tokens": 4, "output_tokens": 4, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 5,
        },
    }  # fmt: skip
    assert response.get("content-length") == str(len(response.body))


async def test_headers_of_the_other_api_stop_here(serve: Serve) -> None:
    """The engine hears no Anthropic headers, gets the client's key as a bearer, and may not compress."""
    setup = await translating(serve)
    setup.u1.always(unary(COMPLETION))
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "x", "x-api-key": "k"}
    headers |= {"Accept-Encoding": "gzip", "X-Own": "1"}
    await raw.post(setup.url, MESSAGES, body(), headers)
    seen = setup.u1.calls[0]
    assert seen.get("authorization") == "Bearer k"
    assert seen.get("x-own") == "1"
    assert not seen.head.names & {"anthropic-version", "anthropic-beta", "x-api-key", "accept-encoding"}


async def test_a_stream_is_translated_as_it_arrives(serve: Serve) -> None:
    """Each piece reaches the client before the engine sends the next."""
    setup = await translating(serve)
    gate = asyncio.Event()
    first_piece = chunked([event(text("a"))], end=False)
    setup.u1.always([*first_piece, gate, *stream(chunk(finish="stop"), usage(3, 1))[1:]])
    async with await raw.Client.connect(setup.url) as client:
        await client.post(MESSAGES, body(stream=True))
        response = await client.head()
        first = await anext(client.body())
        assert types(events(first)) == ["message_start", "start", "delta"]
        gate.set()
        await client.rest()
    assert str(response.get("content-type")).startswith("text/event-stream")
    seen = events(response.body)
    assert_grammar(seen)
    assert gathered(seen)["usage"]["output_tokens"] == 1
    assert response.whole


async def test_the_next_request_uses_the_same_connections(serve: Serve) -> None:
    """Translated answers are framed well on both sides: neither connection is closed."""
    setup = await translating(serve)
    streams = stream(text("a"), chunk(finish="stop"))
    setup.u1.script = lambda seen: streams if b'"stream":true' in seen.body else unary(COMPLETION)
    async with await raw.Client.connect(setup.url) as client:
        for streamed in (False, True, False, True):
            await client.post(MESSAGES, body(stream=streamed))
            assert (await client.response()).whole
    assert len(setup.u1.relayed) == 1


@pytest.mark.parametrize("ending", ["reset", "cut"])
async def test_r047_a_translated_stream_that_breaks_ends_in_an_error_event(serve: Serve, ending: str) -> None:
    """After text, a reset and a stream that just stops both end in an error event and a broken answer."""
    setup = await translating(serve)
    pieces = stream(text("a"), done=False, end=ending == "cut")
    setup.u1.always([*pieces, Step.RESET] if ending == "reset" else pieces)
    async with await raw.Client.connect(setup.url) as client:
        await client.post(MESSAGES, body(stream=True))
        response = await client.head()
        await client.rest()
    seen = events(response.body)
    assert types(seen)[-1] == "error"
    assert seen[-1]["error"]["type"] == "api_error"
    assert not response.whole
    assert b"[DONE]" not in response.body


async def test_r047_an_error_that_the_engine_tells_ends_the_stream(serve: Serve) -> None:
    """The engine's own in-band error is the last event, and the connection goes on."""
    setup = await translating(serve)
    setup.u1.always(stream(text("a"), {"error": {"message": "boom", "type": "server_error", "code": 500}}))
    response = await raw.post(setup.url, MESSAGES, body(stream=True))
    assert events(response.body)[-1] == {"type": "error", "error": {"type": "api_error", "message": "boom"}}
    assert b"[DONE]" not in response.body
    assert response.whole


async def test_an_engines_refusal_arrives_in_anthropics_shape(serve: Serve) -> None:
    """Status and sentence of the engine, type and shape of the API; also for a stream."""
    setup = await translating(serve)
    setup.u1.always(error(400, {"error": {"message": "bad tool", "type": "BadRequestError", "code": 400}}))
    for streamed in (False, True):
        response = await raw.post(setup.url, MESSAGES, body(stream=streamed))
        assert response.status == 400
        assert response.json() == {"type": "error", "error": {"type": "invalid_request_error", "message": "bad tool"}}


async def test_a_busy_engine_is_overloaded(serve: Serve) -> None:
    """An engine's 503 is Anthropic's 529."""
    setup = await translating(serve)
    setup.u1.always(error(503, {"error": {"message": "busy"}}))
    response = await raw.post(setup.url, MESSAGES, body())
    assert (response.status, response.json()["error"]["type"]) == (529, "overloaded_error")


async def test_a_malformed_body_is_refused_before_the_engine_hears_of_it(serve: Serve) -> None:
    """400 in Anthropic's shape that names the member; the connection goes on."""
    setup = await translating(serve)
    async with await raw.Client.connect(setup.url) as client:
        for bad in ({"model": "m"}, body(messages=[{"role": "user", "content": [{"type": "audio"}]}])):
            await client.post(MESSAGES, bad)
            response = await client.response()
            assert response.status == 400
            assert response.json()["error"]["type"] == "invalid_request_error"
            assert response.json()["error"]["message"].startswith("messages")
            assert response.get("x-should-retry") == "false"
    assert not setup.u1.calls


async def test_r034_bodies_that_are_no_object_are_400(serve: Serve) -> None:
    """Truncated JSON, nothing, a list, a string, bytes that are no UTF-8: 400, never a 5xx of ours."""
    setup = await translating(serve)
    for bad in (b'{"model"', b"", b"[]", b'"hi"', b"\xff"):
        response = await raw.post(setup.url, MESSAGES, bad)
        assert (response.status, response.json()["type"]) == (400, "error")


async def test_r035_odd_session_members_do_no_harm_to_a_translated_request(serve: Serve) -> None:
    """A session_id of any type is no reason to fail, and each answer has a session of its own."""
    setup = await translating(serve)
    setup.u1.always(unary(COMPLETION))
    sessions = set()
    for odd in (123, None, {"a": 1}, ""):
        response = await raw.post(setup.url, MESSAGES, body(session_id=odd))
        assert response.status == 200
        sessions.add(response.get("x-session-id"))
    assert len(sessions) == 4


# ── failing over ─────────────────────────────────────────────────────────────────────────────────────
async def test_a_translated_request_fails_over_until_the_first_byte(serve: Serve) -> None:
    """A worker that says 200 and then dies before a byte of the body is replaced by another."""
    setup = await translating(serve, 2)
    setup.u1.always([head(200, [*SSE, ("Transfer-Encoding", "chunked")]), 0.05, Step.RESET])
    setup.u2.always(stream(text("b"), chunk(finish="stop")))
    pin = {"X-Session-Id": "s1"}
    for _ in range(2):  # whoever is asked first, one of them answers
        response = await raw.post(setup.url, MESSAGES, body(stream=True), pin)
        assert gathered(events(response.body))["content"] == [{"type": "text", "text": "b"}]
    assert setup.u1.calls


@pytest.mark.parametrize(
    "reply",
    [unary([1]), answer(200, b"{", JSON), unary({"choices": []}), [head(200, LONG) + b'{"half', Step.RESET]],
)
async def test_nonsense_from_one_engine_is_made_good_by_another(serve: Serve, reply: Any) -> None:
    """A whole answer that is none, or breaks off, is asked of another worker: nothing reached the client yet."""
    setup = await translating(serve, 2)
    setup.u1.always(reply)
    setup.u2.always(unary(COMPLETION))
    for _ in range(2):
        response = await raw.post(setup.url, MESSAGES, body())
        assert response.status == 200
        assert response.json()["content"] == [{"type": "text", "text": "hello"}]


async def test_nonsense_from_every_engine_is_a_502(serve: Serve) -> None:
    """What cannot be translated is never made up."""
    setup = await translating(serve, 1, "--breaker-failure-threshold", "0")
    for bad in (unary([1]), stream(text("a")), answer(200, b"\x1f\x8b", [*JSON, ("Content-Encoding", "gzip")])):
        setup.u1.always(bad)
        response = await raw.post(setup.url, MESSAGES, body())
        assert (response.status, response.json()["error"]["type"]) == (502, "api_error")


async def test_a_gone_client_frees_the_engine(serve: Serve) -> None:
    """When the client of a translated stream leaves, the engine's connection is closed at once."""
    setup = await translating(serve)
    setup.u1.always([*stream(text("a"), done=False, end=False), Step.HANG])
    async with await raw.Client.connect(setup.url) as client:
        await client.post(MESSAGES, body(stream=True))
        await client.head()
    await asyncio.wait_for(setup.u1.calls[0].connection.gone.wait(), 5)


# ── patience ─────────────────────────────────────────────────────────────────────────────────────────
async def test_a_silent_stream_is_pinged(serve: Serve) -> None:
    """After some silence inside the stream the client gets a ping, and then the rest."""
    setup = await translating(serve, 1, "--stream-keepalive", "0.2")
    gap: list[Any] = stream(text("a"), chunk(finish="stop"))
    setup.u1.always([*gap[:2], 0.7, *gap[2:]])
    seen = events((await raw.post(setup.url, MESSAGES, body(stream=True))).body)
    assert "ping" in types(seen)
    assert_grammar(seen)


async def test_a_ping_before_any_answer_does_not_end_failover(serve: Serve) -> None:
    """The client is pinged while the first worker keeps silent; when that dies, the other one answers the stream."""
    setup = await translating(serve, 2, "--stream-keepalive", "0.2", "--affinity-slack", "0")
    answers = iter([[0.6, Step.RESET], stream(text("b"), chunk(finish="stop"))])
    setup.u1.script = setup.u2.script = lambda _seen: next(answers)
    response = await raw.post(setup.url, MESSAGES, body(stream=True))
    seen = events(response.body)
    assert types(seen)[0] == "ping"
    assert_grammar([one for one in seen if one["type"] != "ping"])
    assert gathered(seen)["content"] == [{"type": "text", "text": "b"}]
    assert len(setup.u1.calls + setup.u2.calls) == 2
    assert response.whole


@pytest.mark.parametrize("last", [[Step.RESET], error(400, {"error": {"message": "no"}})])
async def test_a_failure_after_a_ping_is_the_last_event(serve: Serve, last: Any) -> None:
    """Once the stream is open, a refusal cannot be a status any more: it is an error event, and the stream ends."""
    setup = await translating(serve, 1, "--stream-keepalive", "0.2", "--request-max-retries", "0")
    setup.u1.always([0.5, *last])
    response = await raw.post(setup.url, MESSAGES, body(stream=True))
    seen = events(response.body)
    assert (types(seen)[0], types(seen)[-1]) == ("ping", "error")
    assert response.status == 200
    assert response.whole


# ── who speaks what ──────────────────────────────────────────────────────────────────────────────────
async def test_an_engine_that_speaks_messages_gets_them_as_they_are(serve: Serve) -> None:
    """auto asks each engine once; one that has the route is passed the client's own bytes."""
    setup = await serve(1)
    message = {"type": "message", "content": []}
    setup.u1.always(unary(message))
    sent = b'{"model": "m",  "messages": []}'
    for _ in range(3):
        response = await raw.post(setup.url, MESSAGES, sent)
        assert response.json() == message
    assert [call.body for call in setup.u1.calls] == [sent] * 3
    assert [call.head.target for call in setup.u1.calls] == [MESSAGES] * 3
    assert sum(probe.head.path == MESSAGES for probe in setup.u1.probes) == 1


async def test_an_engine_that_does_not_is_translated_for(serve: Serve) -> None:
    """auto translates where the route is missing, also in a fleet where another engine has it."""
    setup = await serve(2, "--affinity-slack", "0")
    setup.u1.spoken.clear()
    setup.u1.always(unary(COMPLETION))
    setup.u2.always(unary({"type": "message", "role": "assistant", "content": [], "id": "msg_own"}))
    found = {(await raw.post(setup.url, MESSAGES, body(), {"X-Request-Id": "r"})).json()["id"] for _ in range(6)}
    assert found == {"msg_r", "msg_own"}
    assert {call.head.target for call in setup.u1.calls} == {"/v1/chat/completions"}
    assert {call.head.target for call in setup.u2.calls} == {MESSAGES}


async def test_passthrough_judges_nothing(serve: Serve) -> None:
    """With --anthropic passthrough the engine gets the bytes, and nobody is asked what it speaks."""
    setup = await serve(1, "--anthropic", "passthrough")
    setup.u1.spoken.clear()
    response = await raw.post(setup.url, MESSAGES, b"[]")
    assert response.status == 200
    assert setup.u1.calls[0].body == b"[]"
    assert not [probe for probe in setup.u1.probes if probe.head.path == MESSAGES]


# ── counting ─────────────────────────────────────────────────────────────────────────────────────────
COUNT = "/v1/messages/count_tokens"


async def test_r056_tokens_are_counted_by_the_engine_where_there_is_no_tokenizer(serve: Serve) -> None:
    """The same chat goes to /tokenize, the answer is Anthropic's; fifty at once, and none of them generates."""
    setup = await translating(serve)
    setup.u1.script = lambda seen: unary({"count": len(seen.body), "tokens": []})
    small = await raw.post(setup.url, COUNT + "?beta=true", body())
    tools = [{"name": "f", "input_schema": {}}, {"name": "g", "input_schema": {}}]
    large = await raw.post(setup.url, COUNT, body(system="word " * 20, tools=tools))
    assert large.json()["input_tokens"] > small.json()["input_tokens"] > 0
    async with asyncio.timeout(2):
        many = await asyncio.gather(*(raw.post(setup.url, COUNT, body()) for _ in range(50)))
    assert {response.status for response in many} == {200}
    assert {call.head.path for call in setup.u1.calls} == {"/tokenize"}


async def test_r056_a_count_that_nobody_can_make_is_not_found(serve: Serve) -> None:
    """An engine without /tokenize gives 404 not_found_error in Anthropic's shape."""
    setup = await translating(serve)
    setup.u1.always(error(404, {"detail": "Not Found"}))
    response = await raw.post(setup.url, COUNT, body())
    assert (response.status, response.json()["error"]["type"]) == (404, "not_found_error")


async def test_a_count_pins_no_session(serve: Serve) -> None:
    """Editors count dozens of times; that is no conversation with a worker."""
    setup = await translating(serve)
    setup.u1.always(unary({"count": 3}))
    await raw.post(setup.url, COUNT, body(), {"X-Session-Id": "s1"})
    assert (await setup.server.health())["sessions"] == 0


TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }} {{ m.content }}{% endfor %}"
    "{% if tools %}{{ tools|tojson }}{% endif %}"
)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A folder with a tokenizer that counts words, and a chat template."""
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    words = Tokenizer(WordLevel({"[UNK]": 0, "<s>": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = Whitespace()
    words.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


async def test_r056_tokens_are_counted_here_where_there_is_a_tokenizer(serve: Serve, tokenizer: Path) -> None:
    """System and tools count too; no worker hears of it, also when there is nobody to hear."""
    setup = await serve(1, "--router-tokenizer-path", str(tokenizer))
    tools = [{"name": "f", "input_schema": {}}, {"name": "g", "input_schema": {}}]
    large = await raw.post(setup.url, COUNT, body(system="word " * 20, tools=tools))
    small = await raw.post(setup.url, COUNT, body())
    assert large.json()["input_tokens"] > 20 > small.json()["input_tokens"] > 0
    async with asyncio.timeout(2):
        many = await asyncio.gather(*(raw.post(setup.url, COUNT, body()) for _ in range(50)))
    assert {response.status for response in many} == {200}
    assert not setup.u1.calls
    unknown = await raw.post(setup.url, COUNT, body(model="nope"))
    assert (unknown.status, unknown.json()["error"]["type"]) == (404, "not_found_error")
    bad = await raw.post(setup.url, COUNT, body(messages=[]))
    assert (bad.status, bad.json()["error"]["message"].partition(":")[0]) == (400, "messages")


async def test_large_images_pass_within_the_limit_and_not_beyond(serve: Serve) -> None:
    """An image of some megabytes reaches the engine whole; a body over the limit is 413 in Anthropic's shape."""
    setup = await translating(serve, 1, "--max-body-size", "6000000")
    setup.u1.always(unary(COMPLETION))
    data = "QUJD" * 1_000_000
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    asked = body(messages=[{"role": "user", "content": [image]}])
    assert (await raw.post(setup.url, MESSAGES, asked)).status == 200
    part = json.loads(setup.u1.calls[0].body)["messages"][0]["content"][0]
    assert part["image_url"]["url"] == "data:image/png;base64," + data
    asked["messages"][0]["content"].append(image)
    response = await raw.post(setup.url, MESSAGES, asked)
    assert (response.status, response.json()["error"]["type"]) == (413, "request_too_large")
