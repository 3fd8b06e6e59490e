"""What cost routing reads of a body (replica-router §2.5)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infera_cli.errors import RequestError
from infera_cli.protocol.prompt_text import Asked, read


def asked(**members: Any) -> Asked:
    return read(json.dumps(members).encode())


def texts(found: Asked) -> list[bytes]:
    return [text for _, text, _ in found.pieces]


TEXT = (
    st.text(max_size=30) | st.text("ab ", min_size=1000, max_size=3000)
    | st.text("ab\n\\\"é", min_size=1000, max_size=1400)
)  # fmt: skip


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(["system", "user"]), TEXT), max_size=6), st.booleans(), st.booleans())
def test_long_texts_are_read_like_any(said: list[tuple[str, str]], ascii_only: bool, blanks: bool) -> None:
    """Whether they are skipped or read, and however the client writes JSON."""
    messages = [{"role": role, "content": text} for role, text in said]
    separators = None if blanks else (",", ":")
    body = json.dumps({"model": "m", "messages": messages}, ensure_ascii=ascii_only, separators=separators)
    found = read(body.encode("utf-8", "surrogatepass"))
    assert found.pieces == [(role == "system", text.encode("utf-8", "surrogatepass"), b"") for role, text in said]
    assert found.peek.model == "m"


@pytest.mark.parametrize("number", [0, 7, -9, 1.5, True])
def test_a_number_for_a_text_is_no_text(number: object) -> None:
    """It is told as what else the message holds; beside long texts it tells something, and breaks nothing."""
    assert asked(messages=[{"role": "user", "content": number}]).pieces == ((False, b"", json.dumps(number).encode()),)
    beside = asked(messages=[{"role": "user", "content": "x" * 2000}, {"role": "user", "content": number}])
    assert beside.pieces[0] == (False, b"x" * 2000, b"")


def test_a_chat_body_tells_its_messages() -> None:
    """Role, text of strings and of text parts, and what else a message holds."""
    found = asked(model="m", messages=[
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [
            {"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "u"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    ])
    assert [piece[:2] for piece in found.pieces] == [(True, b"be brief"), (False, b"see"), (False, b"")]
    assert b"image_url" in found.pieces[1][2]
    assert b"tool_calls" in found.pieces[2][2]
    assert found.peek.model == "m"


def test_other_apis_are_read_too() -> None:
    """Anthropic's `system`, completions' `prompt`, Responses' `input` and `instructions`."""
    anthropic = asked(system="s", messages=[{"role": "user", "content": "u"}])
    assert [piece[:2] for piece in anthropic.pieces] == [(True, b"s"), (False, b"u")]
    assert texts(asked(prompt="p")) == [b"p"]
    assert texts(asked(instructions="i", input="x")) == [b"i", b"x"]
    assert texts(asked(input=[{"role": "user", "content": "y"}])) == [b"y"]


@pytest.mark.parametrize(
    ("members", "output"),
    [
        ({}, None), ({"max_tokens": 7}, 7), ({"max_tokens": 7, "max_completion_tokens": 9}, 9),
        ({"max_output_tokens": 3}, 3),
        ({"max_tokens": "7"}, None), ({"max_tokens": True}, None), ({"max_tokens": 0}, None),
    ],
)  # fmt: skip
def test_the_length_of_the_answer_is_what_the_client_allows(members: dict[str, Any], output: int | None) -> None:
    """max_completion_tokens before max_tokens; nonsense counts as silence."""
    assert asked(**members).output == output


@pytest.mark.parametrize("body", [b"", b"nonsense", b"[1]", b'{"messages": 5}', b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_request_tells_nothing(body: bytes) -> None:
    """The engine judges it; routing knows nothing of it."""
    assert read(body).pieces == ()


def test_extensions_are_seen_and_checked() -> None:
    """`cut` says that the body holds them; malformed ones are refused."""
    found = asked(**{"x-inferact": {"priority": 9}, "stream": True})
    assert (found.cut, found.extensions.priority, found.stream) == (True, 9, True)
    assert asked().cut is False
    with pytest.raises(RequestError):
        asked(**{"x-inferact": None})
