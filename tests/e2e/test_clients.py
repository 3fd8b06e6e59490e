"""What an ordinary client gets through the router from real vLLM."""

from __future__ import annotations

import anthropic
import httpx
import openai
import pytest

from tests.e2e.conftest import Fleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

HELLO: list[dict[str, str]] = [{"role": "user", "content": "Say something about rivers."}]
EXACT = {"temperature": 0, "max_tokens": 12}
IGNORE_EOS = {"ignore_eos": True}


@pytest.fixture
def client(fleet: Fleet) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{fleet.router.url}/v1", api_key="unused", max_retries=0)


@pytest.fixture
def direct(fleet: Fleet) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{fleet.engines['left'].url}/v1", api_key="unused", max_retries=0)


@pytest.fixture
def messages(fleet: Fleet) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=fleet.router.url, api_key="unused", max_retries=0)


def test_models_are_learned_from_the_engines(client: openai.OpenAI) -> None:
    """The one model that both engines serve is listed once."""
    assert [model.id for model in client.models.list()] == ["tiny"]


def test_a_chat_completion_is_what_the_engine_says(client: openai.OpenAI, direct: openai.OpenAI) -> None:
    """A chat through the router has the text and the usage that the engine itself gives."""
    routed, plain = (
        c.chat.completions.create(model="tiny", messages=HELLO, extra_body=IGNORE_EOS, **EXACT)  # type: ignore[call-overload]
        for c in (client, direct)
    )
    assert routed.choices[0].message.content == plain.choices[0].message.content
    assert routed.usage.completion_tokens == 12
    assert routed.usage.prompt_tokens == plain.usage.prompt_tokens


def test_a_streamed_chat_is_the_same_text_in_pieces(client: openai.OpenAI, direct: openai.OpenAI) -> None:
    """A streamed chat arrives in more than one piece and ends with the usage chunk asked for."""
    plain = direct.chat.completions.create(model="tiny", messages=HELLO, extra_body=IGNORE_EOS, **EXACT)  # type: ignore[call-overload]
    stream = client.chat.completions.create(  # type: ignore[call-overload]
        model="tiny", messages=HELLO, stream=True, stream_options={"include_usage": True},
        extra_body=IGNORE_EOS, **EXACT,
    )  # fmt: skip
    chunks = list(stream)
    pieces = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    assert len(pieces) > 1
    assert "".join(pieces) == plain.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == 12


def test_completions_are_relayed_plain_and_streamed(client: openai.OpenAI) -> None:
    """A text completion says the same whether it is streamed or not."""
    plain = client.completions.create(model="tiny", prompt="Rivers", extra_body=IGNORE_EOS, **EXACT)  # type: ignore[call-overload]
    stream = client.completions.create(  # type: ignore[call-overload]
        model="tiny", prompt="Rivers", stream=True, extra_body=IGNORE_EOS, **EXACT
    )
    assert plain.choices[0].text
    assert "".join(chunk.choices[0].text for chunk in stream) == plain.choices[0].text


def test_messages_are_relayed_to_an_engine_that_speaks_them(messages: anthropic.Anthropic) -> None:
    """The Anthropic client talks to vLLM's own Messages route, plain and streamed."""
    ask = {"model": "tiny", "max_tokens": 12, "messages": HELLO, "extra_body": {"temperature": 0}}
    plain = messages.messages.create(**ask)  # type: ignore[call-overload]
    with messages.messages.stream(**ask) as stream:  # type: ignore[arg-type]
        streamed = stream.get_final_message()
    assert plain.type == "message"
    assert plain.usage.output_tokens > 0
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in plain.content]


def test_tokenize_reaches_the_engine(fleet: Fleet) -> None:
    """/tokenize answers as the engine does."""
    body = {"model": "tiny", "prompt": "Rivers run."}
    routed = httpx.post(f"{fleet.router.url}/tokenize", json=body, timeout=30)
    plain = httpx.post(f"{fleet.engines['right'].url}/tokenize", json=body, timeout=30)
    assert routed.status_code == 200
    assert routed.json()["tokens"] == plain.json()["tokens"]


def test_the_engines_own_refusal_is_passed_on(fleet: Fleet) -> None:
    """A 400 of the engine arrives with the engine's status and body."""
    body = {"model": "tiny", "prompt": "Rivers", "max_tokens": 100_000}
    routed = httpx.post(f"{fleet.router.url}/v1/completions", json=body, timeout=30)
    plain = httpx.post(f"{fleet.engines['right'].url}/v1/completions", json=body, timeout=30)
    assert routed.status_code == plain.status_code == 400
    assert routed.json()["error"]["message"] == plain.json()["error"]["message"]


def test_a_model_that_nobody_serves_is_named_in_the_refusal(client: openai.OpenAI) -> None:
    """Once every engine's models are known, an unknown one is a 404 that lists what is served."""
    with pytest.raises(openai.NotFoundError, match="tiny"):
        client.chat.completions.create(model="huge", messages=HELLO)  # type: ignore[arg-type]
