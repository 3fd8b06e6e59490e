"""The route says what is generated from; other members, and other routes, are of no interest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from infera_cli.gateway.kv.reader import Later, PromptReader
from infera_cli.routing.prompt import Prompt
from infera_cli.tokens.load import load_all

CHAT, COMPLETIONS = b"/v1/chat/completions", b"/v1/completions"
MESSAGES: list[Any] = [{"role": "user", "content": "zeta " * 40}]
TEXT = "alpha beta gamma " * 20
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}]}


def a_reader(model: Path) -> PromptReader:
    return PromptReader(load_all([str(model)]), lambda: {("vllm", 16)})


def read(reader: PromptReader, route: bytes, **members: Any) -> Prompt:
    return reader.start(route, msgspec.json.encode({"model": "m", **members})).finish()


@pytest.mark.parametrize("stray", [TEXT, {"id": "p"}, [1, 2, 3], 7])
def test_a_chat_is_its_messages_whatever_prompt_is_beside_them(model: Path, stray: Any) -> None:
    """Engines do not look at it, so the blocks are those of the messages."""
    reader = a_reader(model)
    plain = read(reader, CHAT, messages=MESSAGES)
    assert plain.chains[("vllm", 16)]
    assert read(reader, CHAT, messages=MESSAGES, prompt=stray).chains == plain.chains
    assert read(reader, b"/v1/messages", messages=MESSAGES, prompt=stray, max_tokens=5).chains == plain.chains
    assert not reader.counters.fallbacks


@pytest.mark.parametrize("stray", [MESSAGES, [IMAGE], [7], "odd"])
def test_a_completion_is_its_prompt_whatever_messages_are_beside_it(model: Path, stray: Any) -> None:
    """Be they a conversation, an image, or nothing that anybody could read."""
    reader = a_reader(model)
    plain = read(reader, COMPLETIONS, prompt=TEXT)
    assert plain.chains[("vllm", 16)]
    assert read(reader, COMPLETIONS, prompt=TEXT, messages=stray).chains == plain.chains
    assert (reader.counters.fallbacks, reader.counters.multimodal) == ({}, 0)


def test_one_body_on_two_routes_is_two_prompts(model: Path) -> None:
    """Also when it comes again."""
    reader = a_reader(model)
    both: dict[str, Any] = {"messages": MESSAGES, "prompt": TEXT}
    for _ in range(2):
        chat, text = read(reader, CHAT, **both), read(reader, COMPLETIONS, **both)
        assert chat.chains == read(a_reader(model), CHAT, messages=MESSAGES).chains
        assert text.chains == read(a_reader(model), COMPLETIONS, prompt=TEXT).chains


@pytest.mark.parametrize("route", [CHAT, COMPLETIONS])
def test_a_query_does_not_change_the_route(model: Path, route: bytes) -> None:
    """It is not part of the path."""
    raw = msgspec.json.encode({"model": "m", "messages": MESSAGES, "prompt": TEXT})
    reader = a_reader(model)
    assert reader.look(route + b"?a=b", raw).finish().chains == reader.look(route, raw).finish().chains != {}


@pytest.mark.parametrize(
    "route",
    [b"/v1/embeddings", b"/v1/rerank", b"/v1/score", b"/v1/classify", b"/v1/audio/speech", b"/tokenize",
     b"/v1/messages/count_tokens", b"/v1/audio/transcriptions"],
)  # fmt: skip
def test_where_nothing_is_generated_from_a_prompt_none_is_looked_for(
    model: Path, route: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither words nor messages are tokenized, now or later, and nothing is counted or told."""
    reader = a_reader(model)
    for members in ({"prompt": TEXT}, {"messages": MESSAGES, "prompt_cache_key": "k"}, {"input": "x" * 99_000}):
        raw = msgspec.json.encode({"model": "m", **members})
        reading = reader.look(route, raw)
        assert not isinstance(reading, Later)
        assert (reading.cost, reading.finish().chains) == (0, {})
    counted = reader.counters
    assert (counted.fallbacks, counted.retention, counted.rendered) == ({}, {}, 0)
    assert not caplog.records
