"""The official Anthropic client, where engines speak Messages and where they are translated for."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import pytest

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
TOOL: dict[str, Any] = {
    "name": "look", "description": "Look something up.",
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}  # fmt: skip


@pytest.fixture
def client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)


def test_a_message(client: anthropic.Anthropic) -> None:
    """Text, a reason and usage arrive."""
    message = client.messages.create(model="claude-x", max_tokens=8, messages=HELLO, system="Be brief.")
    assert (message.type, message.role, message.stop_reason) == ("message", "assistant", "max_tokens")
    assert message.content[0].type == "text"
    assert message.content[0].text
    assert message.usage.output_tokens == 8
    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) > 0


def test_a_stream_adds_up_to_the_message(client: anthropic.Anthropic) -> None:
    """The client's own accumulation of the events is what is said when nothing is streamed."""
    asked: dict[str, Any] = {"model": "claude-x", "max_tokens": 12, "messages": HELLO}
    with client.messages.stream(**asked) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    whole = client.messages.create(**asked)
    assert len(pieces) > 1
    assert "".join(pieces) == whole.content[0].text
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", 12)


def test_the_stream_begins_with_the_size_of_the_prompt(client: anthropic.Anthropic) -> None:
    """message_start tells input tokens before a word was said, message_delta those that were not in the cache."""
    said: list[Any] = [{"role": "user", "content": "a river " * 9}]
    with client.messages.stream(model="claude-x", max_tokens=4, messages=said) as stream:
        events = list(stream)
    begun = next(event.message.usage for event in events if event.type == "message_start")
    ended = next(event.usage for event in events if event.type == "message_delta")
    assert begun.input_tokens + (begun.cache_read_input_tokens or 0) > 9
    assert (ended.input_tokens or 0) + (ended.cache_read_input_tokens or 0) > 9


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_is_called_and_its_result_goes_back(client: anthropic.Anthropic, streamed: bool) -> None:
    """One round of an agent: the tool is used, its result is sent, an answer comes."""
    asked: dict[str, Any] = {
        "model": "claude-x", "max_tokens": 400, "messages": HELLO, "tools": [TOOL], "tool_choice": {"type": "any"},
    }  # fmt: skip
    if streamed:
        with client.messages.stream(**asked) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(**asked)
    use = message.content[0]
    assert message.stop_reason == "tool_use"
    assert use.type == "tool_use"
    assert use.name == "look"
    assert use.input["text"]
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "found"}
    said = {"role": "assistant", "content": message.content}
    turns: list[Any] = [*HELLO, said, {"role": "user", "content": [result]}]
    tools: Any = [TOOL]
    answer = client.messages.create(model="claude-x", max_tokens=8, messages=turns, tools=tools)
    assert answer.content[0].type == "text"


def test_a_stop_sequence_is_named(client: anthropic.Anthropic) -> None:
    """The sequence that ended the answer is in the message."""
    asked: dict[str, Any] = {"model": "claude-x", "max_tokens": 40, "messages": HELLO}
    text = client.messages.create(**asked).content[0].text
    stop = text[8:12]
    message = client.messages.create(**asked, stop_sequences=[stop])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)


def test_tokens_are_counted(client: anthropic.Anthropic) -> None:
    """More words are more tokens."""
    counts = [
        client.messages.count_tokens(model="claude-x", messages=HELLO, system=system).input_tokens
        for system in ("Be brief.", "Be brief. " * 20)
    ]
    assert 0 < counts[0] < counts[1]


def test_models_are_listed_in_its_own_shape(client: anthropic.Anthropic) -> None:
    """The client's model page, and a name that stands for a model."""
    assert [model.id for model in client.models.list()] == ["sim"]
    assert client.models.retrieve("claude-x").type == "model"


def test_errors_are_the_clients_own(client: anthropic.Anthropic) -> None:
    """An unknown model and a malformed body are the exceptions that the client has for them."""
    with pytest.raises(anthropic.NotFoundError, match="sim"):
        client.messages.create(model="gpt", max_tokens=8, messages=HELLO)
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(model="claude-x", max_tokens=8, messages=[])


async def test_a_context_that_is_too_long_is_said_in_the_words_that_agents_parse(url: str) -> None:
    """The sentence and the numbers of Anthropic's own API, where the router translates."""
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        long: list[Any] = [{"role": "user", "content": "word " * 60_000}]
        with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > \d+ maximum|context"):
            await client.messages.create(model="claude-x", max_tokens=8, messages=long)


async def test_many_streams_at_once(url: str) -> None:
    """Each of many streams is whole."""
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        async def one(number: int) -> int:
            said: list[Any] = [{"role": "user", "content": f"hello {number}"}]
            async with client.messages.stream(model="claude-x", max_tokens=10, messages=said) as stream:
                return (await stream.get_final_message()).usage.output_tokens

        assert set(await asyncio.gather(*map(one, range(20)))) <= set(range(1, 11))
