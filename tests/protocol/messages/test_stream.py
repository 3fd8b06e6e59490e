"""Chat streams as Messages streams."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.protocol.messages.answer import to_message
from infera_cli.protocol.messages.stream import MessageStream
from tests.protocol.messages import said
from tests.protocol.messages.said import (
    assert_grammar,
    call,
    chunk,
    events,
    gathered,
    sse,
    streamed,
    text,
    tool,
    translated,
    types,
    usage,
)

ROLE = chunk({"role": "assistant", "content": ""})


@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
def test_r040_text_and_then_a_tool_call_stops_for_the_tool(finish: str) -> None:
    """Whatever the engine calls it, an answer with a tool call ends with tool_use."""
    seen = streamed(ROLE, text("Let me look"), tool(0, "{}", id="c", name="look"), chunk(finish=finish))
    message = gathered(seen)
    assert (message["stop_reason"], message["stop_sequence"]) == ("tool_use", None)
    assert [block["type"] for block in message["content"]] == ["text", "tool_use"]


def test_r041_an_answer_that_begins_with_a_tool_call_has_no_text_block() -> None:
    """No empty text block is opened, and no empty piece of arguments is sent."""
    seen = streamed(ROLE, tool(0, "", id="c", name="f"), tool(0, '{"a":'), tool(0, "1}"), chunk(finish="tool_calls"))
    assert types(seen) == ["message_start", "start", "delta", "delta", "stop", "message_delta", "message_stop"]
    assert seen[1]["content_block"] == {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    assert [seen[at]["delta"]["partial_json"] for at in (2, 3)] == ['{"a":', "1}"]


@pytest.mark.parametrize("pieces", [['{"path":"a.txt"}'], ["{", '"path"', ':"a.txt"}']])
def test_r043_arguments_in_the_chunk_of_the_name_are_kept(pieces: list[str]) -> None:
    """Arguments that arrive with id and name are the beginning of the input."""
    first, *rest = pieces
    seen = streamed(tool(0, first, id="c", name="f"), *(tool(0, piece) for piece in rest), chunk(finish="tool_calls"))
    assert gathered(seen)["content"][0]["input"] == {"path": "a.txt"}


def test_r044_pieces_of_parallel_calls_reach_their_own_blocks() -> None:
    """Arguments that arrive in turns end up in the block of their call, one block at a time."""
    starts = [tool(0, "", id="x", name="f"), tool(1, "", id="y", name="g")]
    pieces = [tool(0, '{"x"'), tool(1, '{"y"'), tool(0, ":1}"), tool(1, ":2}")]
    seen = streamed(text("ok"), *starts, *pieces, chunk(finish="tool_calls"))
    assert_grammar(seen)
    content = gathered(seen)["content"]
    assert [block.get("input") for block in content] == [None, {"x": 1}, {"y": 2}]
    assert [block.get("id") for block in content] == [None, "x", "y"]


def test_a_second_call_streams_as_soon_as_the_first_is_whole() -> None:
    """Calls one after the other are not held back: the first is closed when the second begins."""
    stream = MessageStream(translated(stream=True), "msg_1")
    stream.feed(sse(tool(0, '{"a":1}', id="x", name="f"), done=False))
    out = events(stream.feed(sse(tool(1, '{"b"', id="y", name="g"), done=False)))
    assert types(out) == ["stop", "start", "delta"]
    assert out[2]["delta"]["partial_json"] == '{"b"'


def test_calls_that_an_engine_gives_one_index_are_told_apart_by_their_ids() -> None:
    """An engine that numbers all calls 0 still makes two blocks."""
    seen = streamed(tool(0, "{}", id="x", name="f"), tool(0, "{}", id="y", name="g"), chunk(finish="tool_calls"))
    assert [block["id"] for block in gathered(seen)["content"]] == ["x", "y"]


def test_a_call_waits_for_the_name_of_its_tool() -> None:
    """A call whose id comes first is shown once its name is known; one that never gets a name is not shown."""
    seen = streamed(tool(0, id="x"), tool(0, "{}", name="f"), tool(1, "{}", id="y"), chunk(finish="tool_calls"))
    assert_grammar(seen)
    assert [block["name"] for block in gathered(seen)["content"]] == ["f"]


@pytest.mark.parametrize(
    ("tail", "done"),
    [
        ([chunk(finish="stop"), usage(5, 7)], True),
        ([{**chunk(finish="stop"), "usage": usage(5, 7)["usage"]}], True),
        ([chunk(finish="stop")], False),
    ],
)
def test_r046_every_tail_of_a_stream_closes_the_message_once(tail: list[Any], done: bool) -> None:
    """Finish and usage apart, in one chunk, or a plain end: one message_delta, one message_stop."""
    seen = streamed(text("a"), *tail, done=done)
    assert types(seen)[-3:] == ["stop", "message_delta", "message_stop"]
    assert_grammar(seen)
    if done:
        assert seen[-2]["usage"]["output_tokens"] == 7


def test_r047_an_error_inside_the_stream_is_an_error_event() -> None:
    """The engine's in-band error ends the stream in Anthropic's shape, without message_stop or [DONE]."""
    failure = {"error": {"message": "boom", "type": "server_error", "code": 500}}
    seen = streamed(text("a"), failure)
    assert seen[-1] == {"type": "error", "error": {"type": "api_error", "message": "boom"}}
    assert "message_stop" not in types(seen)


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("reason", ["abort", "cancelled", "error"])
def test_r109_an_answer_that_the_engine_broke_off_is_an_error(reason: str, done: bool) -> None:
    """A finish reason that means failure is an error event, never the end of a turn, with or without [DONE]."""
    seen = streamed(text("a"), text("b"), chunk(finish=reason), done=done)
    assert types(seen) == ["message_start", "start", "delta", "delta", "error"]
    assert seen[-1]["error"]["type"] == "api_error"


def test_a_stream_that_just_stops_is_cut() -> None:
    """Without a finish reason or [DONE] nothing closes the message, and the state says so."""
    stream = MessageStream(translated(stream=True), "msg_1")
    out = stream.feed(sse(text("a"), done=False)) + stream.flush()
    assert types(events(out)) == ["message_start", "start", "delta"]
    assert stream.state == "cut"


def test_a_stream_that_ends_with_done_alone_is_whole() -> None:
    """[DONE] after text ends the message even where the engine gave no reason."""
    assert gathered(streamed(text("a")))["stop_reason"] == "end_turn"


def test_r049_a_stop_sequence_is_named() -> None:
    """The stop string that ended the answer is told; an end without one is end_turn."""
    stops = {"stop_sequences": ["END", "###"]}
    named = gathered(streamed(text("abc"), chunk(finish="stop", stop_reason="###"), **stops))
    plain = gathered(streamed(text("abc"), chunk(finish="stop", stop_reason=None), **stops))
    assert (named["stop_reason"], named["stop_sequence"]) == ("stop_sequence", "###")
    assert (plain["stop_reason"], plain["stop_sequence"]) == ("end_turn", None)


def test_r059_text_around_tools_follows_the_grammar() -> None:
    """Text after a tool is a block of its own, also where one delta holds both."""
    both = chunk({"content": "b", "tool_calls": [call(1, "{}", id="y", name="g")]})
    seen = streamed(text("a"), tool(0, "{}", id="x", name="f"), both, chunk(finish="tool_calls"))
    assert_grammar(seen)
    content = gathered(seen)["content"]
    assert [block.get("text", block.get("id")) for block in content] == ["a", "x", "b", "y"]


def test_r061_reasoning_never_mixes_with_the_text() -> None:
    """Both names of reasoning are one thinking block before the text where it is wanted, and nothing else."""
    values = [chunk({"reasoning_content": "th"}), chunk({"reasoning": "ink"}), text("42"), chunk(finish="stop")]
    wanted = gathered(streamed(*values, thinking={"type": "enabled", "budget_tokens": 1024}))
    assert wanted["content"] == [
        {"type": "thinking", "thinking": "think", "signature": ""}, {"type": "text", "text": "42"}
    ]  # fmt: skip
    assert gathered(streamed(*values))["content"] == [{"type": "text", "text": "42"}]


def test_r062_the_message_begins_with_all_that_sdks_read() -> None:
    """message_start has type, role, our id, the model asked for, no content and the usage so far."""
    first = {**text("x"), "usage": {"prompt_tokens": 9, "completion_tokens": 1}}
    message = streamed(first, chunk(finish="stop"), name="msg_abc")[0]["message"]
    assert message == {
        "id": "msg_abc", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": {
            "input_tokens": 9, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        },
    }  # fmt: skip


def test_the_closing_usage_takes_cached_tokens_out_of_the_input() -> None:
    """Input tokens are the prompt less what was in the cache."""
    seen = streamed(text("a"), chunk(finish="length"), usage(100, 4, cached=60))
    assert seen[-2]["usage"] == {
        "input_tokens": 40, "output_tokens": 4, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 60,
    }  # fmt: skip
    assert seen[-2]["delta"]["stop_reason"] == "max_tokens"


def test_an_answer_with_nothing_in_it_has_one_empty_text() -> None:
    """Streamed and not, an empty answer is one empty block of text."""
    assert gathered(streamed(ROLE, chunk(finish="stop")))["content"] == [{"type": "text", "text": ""}]


def test_only_the_first_choice_becomes_the_message() -> None:
    """Further choices are passed over."""
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": None}]}
    assert gathered(streamed(text("a"), other, chunk(finish="stop")))["content"] == [{"type": "text", "text": "a"}]


def test_lines_that_are_no_events_are_passed_over() -> None:
    """Comments, blank lines, other names and broken JSON change nothing."""
    noise = b": hello\n\n\n\ndata: {broken\n\nevent: other\nid: 1\n\n"
    stream = MessageStream(translated(stream=True), "msg_1")
    out = stream.feed(noise + sse(text("a")) + noise) + stream.flush()
    assert gathered(events(out))["content"] == [{"type": "text", "text": "a"}]


def test_an_event_leaves_when_its_source_arrives() -> None:
    """Nothing is held back: each chunk of text gives its delta in the same step."""
    stream = MessageStream(translated(stream=True), "msg_1")
    stream.feed(sse(ROLE, text("a"), done=False))
    assert [event["delta"]["text"] for event in events(stream.feed(sse(text("b"), done=False)))] == ["b"]


# ── properties ───────────────────────────────────────────────────────────────────────────────────────
PIECES = st.text(max_size=6)
VALUES = st.one_of(
    PIECES.map(text),
    PIECES.map(lambda piece: chunk({"reasoning": piece})),
    st.builds(lambda index, part: tool(index, part, id=f"c{index}", name=f"f{index}"), st.integers(0, 2),
              st.sampled_from(["", "{}", '{"a":', "1}", '"}"'])),
    st.builds(lambda a, b: usage(a + b, a, b), st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from([{"error": {"message": "boom"}}, chunk(finish="stop"), chunk(finish="length"), {"odd": 1}, ROLE]),
)  # fmt: skip
THINKING = {"thinking": {"type": "enabled"}}


@given(st.lists(VALUES, max_size=12), st.data(), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_the_cut_of_the_bytes_changes_nothing(values: list[Any], data: st.DataObject, end: str, done: bool) -> None:
    """Random streams, cut at random places, give exactly what the whole gives."""
    body = sse(*values, done=done).replace(b"\n", end.encode())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    whole, pieces = (MessageStream(translated(stream=True, **THINKING), "msg_1") for _ in range(2))
    expected = whole.feed(body) + whole.flush()
    spans = zip([0, *cuts], [*cuts, len(body)], strict=True)
    found = b"".join([pieces.feed(body[start:end_]) for start, end_ in spans]) + pieces.flush()
    assert found == expected
    assert pieces.state == whole.state


@given(st.lists(VALUES, max_size=12))
def test_every_stream_that_ends_well_follows_the_grammar(values: list[Any]) -> None:
    """Whatever an engine says, a message that is whole is well formed, and one that is not has no message_stop."""
    stream = MessageStream(translated(stream=True, **THINKING), "msg_1")
    seen = events(stream.feed(sse(*values, chunk(finish="stop"))) + stream.flush())
    if stream.state == "done":
        assert_grammar(seen)
    else:
        assert types(seen)[-1] == "error"


INPUTS = st.lists(st.dictionaries(st.text(max_size=3), st.integers()), max_size=3)


@given(st.text(max_size=8), st.text(max_size=8), INPUTS)
def test_a_stream_adds_up_to_the_unary_answer(thought: str, words: str, inputs: list[dict[str, int]]) -> None:
    """The same answer, whole and in pieces, is the same message."""
    calls = [call(n, json.dumps(given), id=f"c{n}", name="f") for n, given in enumerate(inputs)]
    whole = {"reasoning": thought, "content": words, "tool_calls": calls}
    numbers = usage(9, 4, 3)["usage"]
    body = {"choices": [{"index": 0, "message": whole, "finish_reason": "stop"}], "usage": numbers}
    asked = translated(**THINKING)
    unary = json.loads(to_message(json.dumps(body).encode(), asked, "msg_1"))
    pieces = [chunk({"reasoning": c}) for c in thought] + [text(c) for c in words]
    pieces += [chunk({"tool_calls": [one]}) for one in calls]
    assert gathered(said.streamed(*pieces, chunk(finish="stop"), usage(9, 4, 3), **THINKING)) == unary
