"""Whole chat completions as messages, and engines' errors in Anthropic's words."""

from __future__ import annotations

import json
from typing import Any

import anthropic.types
import pytest

from infera_cli.protocol.messages.answer import to_message
from infera_cli.protocol.messages.ending import message_id
from infera_cli.protocol.messages.errors import engine_error, in_agents_words
from tests.protocol.messages.said import call, translated


def answered(message: dict[str, Any], finish: str | None = "stop", stop_reason: Any = None, **members: Any) -> Any:
    """The message that a chat completion becomes."""
    said = {"role": "assistant", **message}
    choice = {"index": 0, "message": said, "finish_reason": finish, "stop_reason": stop_reason}
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}
    body = {"id": "chatcmpl-1", "model": "m1", "choices": [choice], "usage": usage}
    return json.loads(to_message(json.dumps(body).encode(), translated(**members), "msg_1"))


@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
def test_r040_a_whole_answer_with_a_tool_call_stops_for_the_tool(finish: str) -> None:
    """Text, then the call; stop_reason tool_use, stop_sequence null."""
    message = answered({"content": "Let me look", "tool_calls": [call(0, '{"x":1}', id="c", name="look")]}, finish)
    assert (message["stop_reason"], message["stop_sequence"]) == ("tool_use", None)
    assert message["content"] == [
        {"type": "text", "text": "Let me look"}, {"type": "tool_use", "id": "c", "name": "look", "input": {"x": 1}},
    ]  # fmt: skip


@pytest.mark.parametrize("arguments", ["{broken", "[1]", "", None])
def test_arguments_that_are_no_object_become_an_empty_one(arguments: str | None) -> None:
    """The client always reads an object."""
    assert answered({"tool_calls": [call(0, arguments, id="c", name="f")]})["content"][0]["input"] == {}


def test_a_call_without_an_id_gets_one() -> None:
    """Ids of our own begin with toolu_ and differ."""
    message = answered({"tool_calls": [call(0, "{}", name="f"), call(1, "{}", name="f")]})
    ids = [block["id"] for block in message["content"]]
    assert all(one.startswith("toolu_") and len(one) == 26 for one in ids)
    assert len(set(ids)) == 2


def test_r049_a_stop_sequence_is_named_in_a_whole_answer() -> None:
    """Only a stop string that was asked for counts; token ids and others are an ordinary end."""
    stops = {"stop_sequences": ["END", "###"]}
    assert answered({"content": "abc"}, "stop", "###", **stops)["stop_sequence"] == "###"
    assert answered({"content": "abc"}, "stop", 128009, **stops)["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    ("finish", "expected"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "end_turn"), (None, None)],
)
def test_finish_reasons_have_their_counterparts(finish: str | None, expected: str | None) -> None:
    """The table of the sheet."""
    assert answered({"content": "x"}, finish)["stop_reason"] == expected


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_r061_reasoning_of_a_whole_answer_stays_out_of_the_text(name: str) -> None:
    """Dropped, or a thinking block before the text when thinking was asked for."""
    said = {name: "think", "content": "42"}
    assert answered(said)["content"] == [{"type": "text", "text": "42"}]
    first = answered(said, thinking={"type": "adaptive"})["content"][0]
    assert first == {"type": "thinking", "thinking": "think", "signature": ""}


def test_r062_the_message_is_what_the_sdk_expects() -> None:
    """The official model parses it strictly; the id is ours, the model the one asked for, usage without the cache."""
    message = answered({"content": "x"})
    parsed = anthropic.types.Message.model_validate(message, strict=True)
    assert (parsed.id, parsed.model, parsed.stop_sequence) == ("msg_1", "m", None)
    assert (parsed.usage.input_tokens, parsed.usage.output_tokens, parsed.usage.cache_read_input_tokens) == (4, 4, 5)
    assert message_id("0123456789abcdef0123456789abcdef") == "msg_0123456789abcdef01234567"


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"choices":[]}', b'{"choices":[{"message":{"content":1}}]}',
     *(b'{"choices":[{"message":{"content":"a"},"finish_reason":"%b"}]}' % reason
       for reason in (b"abort", b"cancelled", b"error"))],
)  # fmt: skip
def test_what_is_no_answer_is_none(body: bytes) -> None:
    """An engine's nonsense, or an answer it broke off, is never made up into a message."""
    with pytest.raises(ValueError, match=r"chat completion|ended its answer"):
        to_message(body, translated(), "msg_1")


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, {"error": {"message": "no", "type": "BadRequestError"}}, (400, "invalid_request_error", "no")),
        (401, {"error": "Unauthorized"}, (401, "authentication_error", "Unauthorized")),
        (404, {"object": "error", "message": "which", "code": 404}, (404, "not_found_error", "which")),
        (422, {"detail": "bad"}, (400, "invalid_request_error", "bad")),
        (429, {"error": {"message": "slow"}}, (429, "rate_limit_error", "slow")),
        (500, {"error": {"message": "dead"}}, (500, "api_error", "dead")),
        (503, {"error": {"message": "busy"}}, (529, "overloaded_error", "busy")),
        (502, None, (502, "api_error", "The engine answered 502.")),
    ],
)
def test_an_engines_refusal_has_anthropics_shape(status: int, body: Any, expected: tuple[int, str, str]) -> None:
    """Every shape of engines' errors keeps its sentence and gets the API's own type."""
    found, out = engine_error(status, b"" if body is None else json.dumps(body).encode(), None)
    error = json.loads(out)
    assert error["type"] == "error"
    assert (found, error["error"]["type"], error["error"]["message"]) == expected


VLLM = (
    "This model's maximum context length is 2048 tokens. However, you requested 100 output tokens and your prompt "
    "contains {} input tokens, for a total of 2100 tokens. Please reduce the length of the input prompt."
)
SGLANG = (
    "Requested token count exceeds the model's maximum context length of 2048 tokens. You requested a total of 2100 "
    "tokens: 2000 tokens from the input messages and 100 tokens for the completion."
)
OLD = (
    "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens (2000 in the messages, "
    "100 in the completion)."
)
BOTH = (
    "input length and `max_tokens` exceed context limit: 2000 + 100 > 2048, "
    "decrease input length or `max_tokens` and try again"
)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (VLLM.format(3000), "prompt is too long: 3000 tokens > 2048 maximum"),
        (VLLM.format(2000), BOTH),
        (SGLANG, BOTH),
        ("The input (3001 tokens) is longer than the model's context length (2048 tokens).",
         "prompt is too long: 3001 tokens > 2048 maximum"),
        (OLD, BOTH),
        ("max_tokens=2100 cannot be greater than max_model_len=2048. Please request fewer output tokens.",
         "max_tokens: 2100 > 2048, which is the maximum allowed number of output tokens for this model"),
        ("temperature must be below 2", None),
    ],
)  # fmt: skip
def test_a_context_that_is_too_long_is_said_in_the_words_agents_parse(told: str, expected: str | None) -> None:
    """The numbers of the engine's sentence, in the sentence of Anthropic's API."""
    assert in_agents_words(told, 100) == expected
