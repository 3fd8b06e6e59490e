"""Messages requests as chat requests."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.errors import RequestError
from infera_cli.protocol.messages.request import to_chat, to_tokenize
from tests.protocol.messages.said import ask, chat, of_turns, translated

PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
PNG_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
TOOL = {"name": "f", "description": "does f", "input_schema": {"type": "object", "properties": {}}}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def words(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def use(name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "f", "input": given}


def result(name: str, content: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, **({} if content is None else {"content": content}), **more}


def test_plain_members_keep_their_names() -> None:
    """Model, limits and sampling pass; a unary request asks for no stream."""
    assert chat(temperature=0.5, top_p=1, top_k=3) == {
        "model": "m", "max_tokens": 64, "temperature": 0.5, "top_p": 1, "top_k": 3,
        "messages": [{"role": "user", "content": "hi"}],
    }  # fmt: skip


def test_a_streamed_request_asks_for_usage() -> None:
    """The engine is asked for usage in the last chunk, and in each where it can."""
    assert chat(stream=True)["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_members_that_engines_read_pass_and_unknown_ones_stop_here() -> None:
    """One written rule: what is neither Anthropic's nor known to engines is dropped."""
    body = chat(seed=7, ignore_eos=True, service_tier="auto", container="x", mcp_servers=[], betas=[])
    assert set(body) == {"model", "max_tokens", "messages", "seed", "ignore_eos"}


def test_the_clients_name_of_the_model_is_kept_for_the_answer() -> None:
    """The engine reads its own name, the answer will have the client's."""
    made = to_chat(json.dumps(ask(model="real")).encode(), "claude-x")
    assert (made.model, json.loads(made.body)["model"]) == ("claude-x", "real")


def test_r037_histories_hold_no_empty_lists() -> None:
    """A turn of text has no tool_calls, a turn of tools has null content and its calls."""
    text_only = {"role": "assistant", "content": [words("a"), words("b")]}
    tool_only = {"role": "assistant", "content": [use("t1", x=1)]}
    first, second = of_turns(text_only, tool_only, user(result("t1", "r")))[:2]
    assert first == {"role": "assistant", "content": "a\nb"}
    calls = [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}]
    assert second == {"role": "assistant", "content": None, "tool_calls": calls}


def test_r049_stop_sequences_reach_the_engine() -> None:
    """stop_sequences are the engine's stop; an empty list is none."""
    assert chat(stop_sequences=["END", "###"])["stop"] == ["END", "###"]
    assert "stop" not in chat(stop_sequences=[])


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_r050_tool_choice_is_mapped_the_right_way_round(choice: dict[str, Any], expected: Any) -> None:
    """Each choice has its counterpart, and parallel calls stay as the engine has them."""
    body = chat(tools=[TOOL], tool_choice=choice)
    assert body["tool_choice"] == expected
    assert "parallel_tool_calls" not in body


def test_r050_the_switch_for_parallel_calls_is_kept() -> None:
    """disable_parallel_tool_use forbids parallel calls; unknown choices are left out."""
    body = chat(tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("auto", False)
    assert "tool_choice" not in chat(tools=[TOOL], tool_choice={"type": "later"})


def test_tools_are_functions() -> None:
    """Name, schema and description pass; tools that Anthropic's servers run are left out and named."""
    made = translated(tools=[TOOL, {"type": "web_search_20250305", "name": "web_search"}, {**TOOL, "description": ""}])
    schema = TOOL["input_schema"]
    assert json.loads(made.body)["tools"] == [
        {"type": "function", "function": {"name": "f", "parameters": schema, "description": "does f"}},
        {"type": "function", "function": {"name": "f", "parameters": schema}},
    ]  # fmt: skip
    assert made.dropped == ("web_search_20250305",)
    assert chat(tools=[{**TOOL, "strict": True}])["tools"][0]["function"]["strict"] is True


@pytest.mark.parametrize("late", ["B", [words("B")]])
def test_r052_a_system_message_in_the_conversation_joins_the_first(late: Any) -> None:
    """One leading system message holds both, in order."""
    turns = of_turns(user(words("task")), {"role": "system", "content": late}, system="A")
    assert turns == [{"role": "system", "content": "A\nB"}, {"role": "user", "content": "task"}]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([words("a"), {"type": "tool_reference", "tool_name": "x"}, words("b")], "a\nb"),
        (None, ""), ("", ""), ([], ""),
    ],
)  # fmt: skip
def test_r053_results_of_any_content_become_text(content: Any, expected: str) -> None:
    """Unknown items are left out, nothing is an empty text, an error keeps its text."""
    made = translated(messages=[user(result("t1", content, is_error=True))])
    assert json.loads(made.body)["messages"] == [{"role": "tool", "tool_call_id": "t1", "content": expected}]
    assert made.dropped == (("tool_reference",) if expected else ())


def test_r055_results_come_first_and_next_to_each_other() -> None:
    """Results follow the calls in their order, then one user message holds all the text."""
    turn = {"role": "assistant", "content": [use("t1"), use("t2")]}
    turns = of_turns(turn, user(words("note"), result("t2", "two"), result("t1", "one"), words("go")))
    assert turns[1:] == [
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
        {"role": "tool", "tool_call_id": "t2", "content": "two"},
        {"role": "user", "content": "note\ngo"},
    ]


def test_r058_what_agents_send_besides_is_dropped() -> None:
    """System blocks keep their order; hints and beta members do not reach the engine, max_tokens does."""
    system = [words("A", cache_control={"type": "ephemeral"}), words("B")]
    body = chat(system=system, metadata={"user_id": "u", "x": 1}, context_management={},
                thinking={"type": "enabled", "budget_tokens": 1024})  # fmt: skip
    assert body["messages"][0] == {"role": "system", "content": "A\nB"}
    assert body["user"] == "u"
    assert set(body) == {"model", "max_tokens", "messages", "user", "chat_template_kwargs"}
    assert body["chat_template_kwargs"] == {"enable_thinking": True}


@pytest.mark.parametrize(
    "system",
    [
        [words("x-anthropic-billing-header: cc_version=2.1; cch=abc;"), words("You are")],
        "x-anthropic-billing-header: cc_version=2.1; cch=abc;\nYou are",
    ],
)
def test_the_attribution_of_coding_agents_is_no_prompt(system: Any) -> None:
    """The block that changes with every request is dropped, so that the prefix stays the same."""
    assert of_turns(user(words("hi")), system=system)[0] == {"role": "system", "content": "You are"}


def test_images_are_parts_of_the_user_message() -> None:
    """Base64 becomes a data URL, a URL stays one, the order of parts is kept."""
    by_url = {"type": "image", "source": {"type": "url", "url": "https://x/i.png"}}
    assert of_turns(user(words("a"), PNG, by_url))[0]["content"] == [
        {"type": "text", "text": "a"}, PNG_PART, {"type": "image_url", "image_url": {"url": "https://x/i.png"}},
    ]  # fmt: skip


def test_images_inside_a_result_follow_in_the_user_message() -> None:
    """Templates know no image in a tool's turn, so it comes right after, before the user's own words."""
    turns = of_turns(user(result("t1", [words("see"), PNG]), words("what is it")))
    assert turns == [
        {"role": "tool", "tool_call_id": "t1", "content": "see"},
        {"role": "user", "content": [PNG_PART, {"type": "text", "text": "what is it"}]},
    ]


def test_a_document_of_text_is_text() -> None:
    """A document whose source is text is read; others are refused."""
    source = {"type": "text", "media_type": "text/plain", "data": "paper"}
    assert of_turns(user({"type": "document", "source": source}))[0]["content"] == "paper"


def test_thinking_of_earlier_turns_is_reasoning() -> None:
    """Thinking blocks go back as reasoning, redacted ones are left out."""
    thoughts = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "redacted_thinking", "data": "x"}]
    turn = {"role": "assistant", "content": [*thoughts, words("a")]}
    expected = {"role": "assistant", "content": "a", "reasoning_content": "hm"}
    assert of_turns(turn, user(words("b")))[0] == expected


@pytest.mark.parametrize(("kind", "enabled"), [("enabled", True), ("adaptive", True), ("disabled", False)])
def test_thinking_is_asked_of_the_template(kind: str, enabled: bool) -> None:
    """The switch that templates read follows the request; the client's own kwargs win."""
    assert chat(thinking={"type": kind})["chat_template_kwargs"] == {"enable_thinking": enabled}
    own = {"enable_thinking": "mine", "x": 1}
    assert chat(thinking={"type": kind}, chat_template_kwargs=own)["chat_template_kwargs"] == own


def test_the_beginning_of_the_answer_is_continued() -> None:
    """A last turn of the assistant is a prefix of the answer, not a turn of its own."""
    body = chat(messages=[user(words("a")), {"role": "assistant", "content": "{"}])
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


def test_a_schema_for_the_answer_is_passed() -> None:
    """output_config.format is OpenAI's response_format."""
    schema = {"type": "object"}
    body = chat(output_config={"format": {"type": "json_schema", "schema": schema}})
    assert body["response_format"] == {"type": "json_schema", "json_schema": {"name": "output", "schema": schema}}


def test_counting_asks_the_engine_for_the_same_chat() -> None:
    """A count covers system, tools and messages, and nothing that shapes an answer."""
    body = ask(system="A", tools=[TOOL], tool_choice={"type": "any"})
    asked = json.loads(to_tokenize(json.dumps(body).encode()).body)
    assert set(asked) == {"model", "messages", "tools", "add_generation_prompt"}
    assert asked["messages"][0]["content"] == "A"


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────
TOOL_0 = {"tools": [{"name": "f"}]}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "model"),
    ({"model": " "}, "model"),
    ({"model": 3}, "model"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": {}}, "messages"),
    ({"messages": ["hi"]}, "messages.0"),
    ({"messages": [{"content": "hi"}]}, "messages.0.role"),
    ({"messages": [{"role": "user"}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
    ({"messages": [user({"text": "x"})]}, "messages.0.content.0.type"),
    ({"messages": [user({"type": "text"})]}, "messages.0.content.0.text"),
    ({"messages": [user({"type": "audio"})]}, "messages.0.content.0.type"),
    ({"messages": [user({"type": "video"})]}, "messages.0.content.0.type"),
    ({"messages": [user({"type": "document", "source": {"type": "base64"}})]}, "messages.0.content.0.type"),
    ({"messages": [user({"type": "image"})]}, "messages.0.content.0.source"),
    ({"messages": [user({"type": "image", "source": {"type": "file"}})]}, "messages.0.content.0.source.type"),
    ({"messages": [user(result("t", [{"type": "audio"}]))]}, "messages.0.content.0.content.0.type"),
    ({"messages": [user({"type": "tool_result"})]}, "messages.0.content.0.tool_use_id"),
    ({"messages": [user(result("t", 5))]}, "messages.0.content.0.content"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]}, "messages.0.content.0.name"),
    ({"messages": [{"role": "assistant", "content": [PNG]}]}, "messages.0.content.0.type"),
    ({"system": 5}, "system"),
    ({"system": [{"type": "text"}]}, "system.0.text"),
    ({"max_tokens": "64"}, "max_tokens"),
    ({"max_tokens": True}, "max_tokens"),
    ({"temperature": "hot"}, "temperature"),
    ({"stop_sequences": "END"}, "stop_sequences"),
    ({"stop_sequences": [1]}, "stop_sequences.0"),
    ({"stream": "yes"}, "stream"),
    ({"metadata": []}, "metadata"),
    ({"metadata": {"user_id": 5}}, "metadata.user_id"),
    ({"tools": {}}, "tools"),
    (TOOL_0, "tools.0.input_schema"),
    ({"tools": [{"input_schema": {}}]}, "tools.0.name"),
    ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"thinking": True}, "thinking"),
    ({"thinking": {}}, "thinking.type"),
]  # fmt: skip


@pytest.mark.parametrize(("members", "named"), BAD, ids=[named for _, named in BAD])
def test_a_malformed_body_is_refused_by_the_name_of_the_member(members: dict[str, Any], named: str) -> None:
    """The refusal begins with the path of the member that is wrong."""
    with pytest.raises(RequestError) as caught:
        translated(**members)
    assert caught.value.param == named
    assert caught.value.message.startswith(f"{named}: ")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"hi"', b"\xff", b"null", b'{"model":"\\ud800"}', b'{"a":' * 100_000,
             b'{"model":"m","messages":' + b"[" * 50_000 + b"]" * 50_000 + b"}"]
)
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    """Truncated, nested too deeply, half a character, not UTF-8: always one sentence."""
    with pytest.raises(RequestError):
        to_chat(body)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b'{"model":"a [{ \\" b","messages":' + b"[" * 50_000, "messages"),
        (b'{"system":[[]],"tools":[{"input_schema":' + b'{"x":' * 40_000 + b"1" + b"}" * 40_000 + b'}]}', "tools"),
        (b"[" * 90_000, None),
    ],
    ids=["cut", "whole", "no-object"],
)
def test_nesting_that_is_too_deep_is_told_with_its_member(body: bytes, named: str | None) -> None:
    """However deep, the member of the body in which it lies is named."""
    with pytest.raises(RequestError, match="nested too deeply") as caught:
        to_chat(body)
    assert caught.value.param == named


NAMES = ["type", "text", "role", "content", "source", "name", "input", "tool_use_id"]
MEMBERS = ["system", "messages", "tools", "tool_choice", "metadata", "thinking", "stop_sequences", "stream"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=4))
def test_any_body_is_translated_or_refused(members: dict[str, Any]) -> None:
    """Nothing that a client sends makes the translator fail in another way."""
    body: dict[str, Any] = {"model": "m"}
    with contextlib.suppress(RequestError):
        body = json.loads(translated(**members).body)
    assert body["model"] == "m"


@pytest.mark.parametrize(("member", "body"), [
    ("messages.0.content", r'{"model":"m","messages":[{"role":"user","content":"cut \ud83d"}]}'),
    ("messages.0.content.1.text", r'{"messages":[{"content":[{"text":"\ud83d\ude00"},{"text":"\ude00"}]}]}'),
    ("tools.0.input_schema", r'{"tools":[{"input_schema":{"\ud800":1}}]}'),
    ("The body", r'{"\ud800":1}'),
])  # fmt: skip
def test_half_a_character_is_refused_where_it_stands(member: str, body: str) -> None:
    """Agents cut text anywhere; the member that they cut is named."""
    with pytest.raises(RequestError, match="half of a character") as refused:
        to_chat(body.encode())
    assert refused.value.param == member
