"""The Responses API over chat: requests, whole answers, streams."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from infera_cli.errors import RequestError
from infera_cli.protocol.responses.answer import to_response
from infera_cli.protocol.responses.errors import engine_error
from infera_cli.protocol.responses.request import ResponseAsk, to_chat
from infera_cli.protocol.responses.stream import ResponseStream
from tests.protocol.messages.said import call, chunk, sse, text, tool, usage
from tests.protocol.messages.test_stream import VALUES

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}


def translated(**members: Any) -> ResponseAsk:
    return to_chat(json.dumps({"model": "m", "input": "hi", **members}).encode())


def chat(**members: Any) -> Any:
    return json.loads(translated(**members).body)


def events(body: bytes) -> list[dict[str, Any]]:
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        first, second = block.split("\n")
        value = json.loads(second.removeprefix("data: "))
        assert first == f"event: {value['type']}"
        found.append(value)
    return found


def streamed(*values: Any, **members: Any) -> list[dict[str, Any]]:
    stream = ResponseStream(translated(stream=True, **members), "resp_1")
    return events(stream.feed(sse(*values)) + stream.flush())


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────
def test_a_text_is_a_user_message() -> None:
    """Instructions come first, as the system's; limits and sampling have chat's names."""
    body = chat(instructions="be short", max_output_tokens=9, temperature=0, top_p=0.5, seed=1, store=True, include=[])
    assert body == {
        "model": "m", "max_tokens": 9, "temperature": 0, "top_p": 0.5, "seed": 1,
        "messages": [{"role": "system", "content": "be short"}, {"role": "user", "content": "hi"}],
    }  # fmt: skip


def test_items_are_turns() -> None:
    """Messages, calls and their outputs become the chat that they tell of."""
    image = {"type": "input_image", "image_url": "data:x"}
    items = [
        {"role": "developer", "content": "D"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        {"role": "user", "content": [image, {"type": "input_text", "text": "?"}]},
    ]
    made = translated(input=items)
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in ("c1", "c2")]
    assert json.loads(made.body)["messages"] == [
        {"role": "system", "content": "D"},
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:x"}}, {"type": "text", "text": "?"},
        ]},
    ]  # fmt: skip
    assert made.dropped == ("reasoning",)


def test_tools_and_formats_have_their_counterparts() -> None:
    """Functions are nested, a named choice too; a schema is a response_format."""
    schema = {"type": "json_schema", "name": "n", "schema": {}, "strict": True}
    body = chat(
        tools=[TOOL, {"type": "web_search"}], tool_choice={"type": "function", "name": "f"}, parallel_tool_calls=False,
        text={"format": schema}, reasoning={"effort": "low"},
    )  # fmt: skip
    assert body["tools"] == [{"type": "function", "function": {name: TOOL[name] for name in TOOL if name != "type"}}]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert (body["parallel_tool_calls"], body["reasoning_effort"]) == (False, "low")
    inside = {name: schema[name] for name in ("name", "schema", "strict")}
    assert body["response_format"] == {"type": "json_schema", "json_schema": inside}


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"previous_response_id": "resp_0"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"background": True}, "background"),
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": ["x"]}, "input.0"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role"),
        ({"input": [{"role": "user", "content": 5}]}, "input.0.content"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input.0.content.0.type"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input.0.call_id"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0.type"),
        ({"model": ""}, "model"),
        ({"tools": [{"type": "function"}]}, "tools.0.name"),
        ({"max_output_tokens": "9"}, "max_output_tokens"),
    ],
)
def test_what_cannot_be_told_is_refused_by_name(members: dict[str, Any], named: str) -> None:
    """What needs a memory, and what is malformed, is refused with the path of the member."""
    with pytest.raises(RequestError) as caught:
        translated(**members)
    assert caught.value.param == named


# ── whole answers ────────────────────────────────────────────────────────────────────────────────────
def test_a_whole_answer_is_what_the_sdk_expects() -> None:
    """Reasoning, text and calls are items; the official model parses the response."""
    message = {"reasoning": "hm", "content": "x", "tool_calls": [call(0, '{"a":1}', id="c1", name="f")]}
    choice = {"message": message, "finish_reason": "tool_calls"}
    body = {**usage(9, 4, 3), "created": 7, "choices": [choice]}
    made = to_response(json.dumps(body).encode(), translated(tools=[TOOL], metadata={"k": "v"}), "resp_1")
    parsed = Response.model_validate_json(made)
    assert [item.type for item in parsed.output] == ["reasoning", "message", "function_call"]
    assert (parsed.id, parsed.output_text, parsed.status, parsed.created_at) == ("resp_1", "x", "completed", 7)
    assert parsed.usage is not None
    assert (parsed.usage.input_tokens, parsed.usage.input_tokens_details.cached_tokens) == (9, 3)
    assert parsed.metadata == {"k": "v"}


def test_an_answer_cut_by_its_limit_is_incomplete() -> None:
    """finish_reason length is status incomplete, with the reason."""
    body = {"choices": [{"message": {"content": "x"}, "finish_reason": "length"}]}
    made = json.loads(to_response(json.dumps(body).encode(), translated(), "resp_1"))
    assert (made["status"], made["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


def test_an_engines_refusal_keeps_its_sentence() -> None:
    """The error has OpenAI's shape whatever the engine's was."""
    status, body = engine_error(400, b'{"object":"error","message":"no"}')
    assert (status, json.loads(body)["error"]["type"]) == (400, "invalid_request_error")
    assert json.loads(body)["error"]["message"] == "no"


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────
def test_a_text_has_the_public_sequence_of_events() -> None:
    """Created, in progress, the item and its part, deltas, their ends, completed; numbered from zero."""
    seen = streamed(text("a"), text("b"), chunk(finish="stop"), usage(3, 2))
    assert [event["type"].removeprefix("response.") for event in seen] == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event["sequence_number"] for event in seen] == list(range(10))
    assert seen[6]["text"] == "ab"
    whole = Response.model_validate(seen[-1]["response"])
    assert whole.output_text == "ab"
    assert whole.usage is not None
    assert whole.usage.total_tokens == 5


def test_calls_are_items_of_their_own() -> None:
    """Each call is added, told in deltas, and done with its whole arguments."""
    seen = streamed(tool(0, '{"a"', id="c1", name="f"), tool(0, ":1}"), tool(1, "{}", id="c2", name="g"),
                    chunk(finish="tool_calls"))  # fmt: skip
    done = [event for event in seen if event["type"] == "response.function_call_arguments.done"]
    assert [(event["name"], event["arguments"]) for event in done] == [("f", '{"a":1}'), ("g", "{}")]
    assert [item["call_id"] for item in seen[-1]["response"]["output"]] == ["c1", "c2"]


def test_a_failure_is_the_last_event() -> None:
    """An in-band error, or an answer broken off by the engine, is response.failed."""
    broken_off = [chunk(finish=reason) for reason in ("abort", "cancelled", "error")]
    for failure in ({"error": {"message": "boom"}}, *broken_off):
        last = streamed(text("a"), failure)[-1]
        assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")


@given(st.lists(VALUES, max_size=10), st.data())
def test_the_cut_of_the_bytes_changes_nothing(values: list[Any], data: st.DataObject) -> None:
    """Random streams cut at random places give what the whole gives, and every event is one that the SDK knows."""
    body = sse(*values)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    whole, pieces = (ResponseStream(translated(stream=True), "resp_1") for _ in range(2))
    expected = whole.feed(body) + whole.flush()
    spans = zip([0, *cuts], [*cuts, len(body)], strict=True)
    assert b"".join([pieces.feed(body[start:end]) for start, end in spans]) + pieces.flush() == expected
    for event in events(expected):
        EVENT.validate_python(event)
