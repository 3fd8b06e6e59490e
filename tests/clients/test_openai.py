"""The official OpenAI client: chat, completions, responses, models, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.clients.conftest import serving

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
CHAT_TOOL: dict[str, Any] = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
TOOL: dict[str, Any] = {"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with serving("--model-alias", "gpt-*=sim") as url:
        yield openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def test_chat_whole_and_streamed(client: openai.OpenAI) -> None:
    """The same text both ways, also under a name that stands for the model."""
    asked: dict[str, Any] = {"model": "gpt-x", "max_tokens": 12, "messages": HELLO}
    whole = client.chat.completions.create(**asked)
    stream = client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert whole.choices[0].message.content == text
    assert chunks[-1].usage.completion_tokens == 12


def test_a_tool_in_a_chat(client: openai.OpenAI) -> None:
    """The arguments of the call are JSON."""
    asked: dict[str, Any] = {"model": "gpt-x", "max_tokens": 400, "messages": HELLO, "tools": [CHAT_TOOL]}
    answer = client.chat.completions.create(**asked, tool_choice="required")
    call = answer.choices[0].message.tool_calls[0]
    assert json.loads(call.function.arguments)["text"]


def test_a_response(client: openai.OpenAI) -> None:
    """Translated to chat, for these engines have no such route."""
    response = client.responses.create(model="gpt-x", input="hello", instructions="Be brief.", max_output_tokens=12)
    assert (response.object, response.status) == ("response", "incomplete")
    assert response.output_text
    assert response.usage is not None
    assert response.usage.output_tokens == 12


def test_a_streamed_response_adds_up(client: openai.OpenAI) -> None:
    """The client's own accumulation is the final response, and the text of the deltas."""
    with client.responses.stream(model="gpt-x", input="hello", max_output_tokens=400) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert len(deltas) > 1
    assert final.output_text == "".join(deltas)


def test_a_tool_in_a_response_and_its_output(client: openai.OpenAI) -> None:
    """A call, its output, and the answer to it: the whole conversation is sent again."""
    asked: dict[str, Any] = {"model": "gpt-x", "input": "hello", "tools": [TOOL], "tool_choice": "required"}
    first = client.responses.create(**asked, max_output_tokens=400)
    call = first.output[0]
    assert call.type == "function_call"
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "found"}
    turns: Any = [{"role": "user", "content": "hello"}, call.model_dump(), output]
    second = client.responses.create(model="gpt-x", input=turns, max_output_tokens=8)
    assert second.output_text


def test_a_streamed_tool_in_a_response(client: openai.OpenAI) -> None:
    """Arguments arrive in pieces and add up to JSON."""
    asked: dict[str, Any] = {"model": "gpt-x", "input": "hello", "tools": [TOOL], "tool_choice": "required"}
    with client.responses.stream(**asked, max_output_tokens=400) as stream:
        final = stream.get_final_response()
    call: Any = final.output[0]
    assert json.loads(call.arguments)["text"]


def test_what_is_not_stored_is_refused(client: openai.OpenAI) -> None:
    """previous_response_id is a bad request that names the member."""
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="gpt-x", input="hello", previous_response_id="resp_0")
    assert caught.value.param == "previous_response_id"


def test_models_and_unknown_ones(client: openai.OpenAI) -> None:
    """The list, one card, and 404 with what is served."""
    assert [model.id for model in client.models.list()] == ["sim"]
    assert client.models.retrieve("gpt-x").id == "gpt-x"
    with pytest.raises(openai.NotFoundError, match="sim"):
        client.chat.completions.create(model="nope", messages=HELLO)
