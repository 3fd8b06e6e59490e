"""What cost routing reads of a body (replica-router §2.5)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infera_cli.errors import RequestError
from infera_cli.protocol.prompt_text import Asked, read


def asked(**members: Any) -> Asked:
    return read(json.dumps(members).encode())


def test_a_chat_body_tells_its_messages() -> None:
    """Role, text of strings and of text parts, and what else a message holds."""
    found = asked(model="m", messages=[
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [
            {"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "u"}}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
    ])
    assert [(piece.system, piece.text) for piece in found.pieces] == [(True, "be brief"), (False, "see"), (False, "")]
    assert b"image_url" in found.pieces[1].rest
    assert b"tool_calls" in found.pieces[2].rest
    assert found.peek.model == "m"


def test_other_apis_are_read_too() -> None:
    """Anthropic's `system`, completions' `prompt`, Responses' `input` and `instructions`."""
    anthropic = asked(system="s", messages=[{"role": "user", "content": "u"}])
    assert [(piece.system, piece.text) for piece in anthropic.pieces] == [(True, "s"), (False, "u")]
    assert [piece.text for piece in asked(prompt="p").pieces] == ["p"]
    assert [piece.text for piece in asked(instructions="i", input="x").pieces] == ["i", "x"]
    assert [piece.text for piece in asked(input=[{"role": "user", "content": "y"}]).pieces] == ["y"]


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
