"""What routing reads of a body, and that long texts make no difference to it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.protocol.peek import peek

LONG = "lorem ipsum " * 120
ESCAPED = [LONG + '"', "\\" + LONG, LONG + "\\", LONG + '\\"' + LONG, '"content":"' + LONG]
TEXTS = st.sampled_from([LONG, *ESCAPED, "x", ""])
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["content", "model", "x"]), inner),
    max_leaves=12,
)
NAMES = ["model", "session_id", "prompt_cache_key", "metadata", "content", "messages"]
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (",\n", " :")])


class Plain(msgspec.Struct):
    model: object = None
    session_id: object = None
    prompt_cache_key: object = None
    metadata: object = None


@given(st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=7), SEPARATORS, st.booleans())
def test_a_peek_tells_what_the_whole_body_says(
    members: list[tuple[str, Any]], separators: tuple[str, str], ascii_only: bool
) -> None:
    """Whatever lies between, before or after, and whichever of two members of a name comes last."""
    parts = [json.dumps({name: value}, separators=separators, ensure_ascii=ascii_only)[1:-1] for name, value in members]
    body = ("{" + separators[0].join(parts) + "}").encode()
    told, plain = peek(body), msgspec.json.decode(body, type=Plain)
    if not isinstance(plain.model, str):
        assert told.model is None
    else:
        assert told.model is not None
        assert told.model.removesuffix("…") == plain.model[:256]
    named = [
        (kind, value)
        for kind, value in (
            ("session_id", plain.session_id),
            ("prompt_cache_key", plain.prompt_cache_key),
            ("user_id", plain.metadata.get("user_id") if isinstance(plain.metadata, dict) else None),
        )
        if isinstance(value, str) and value
    ]
    assert told.session == (named[0] if named else None)


@pytest.mark.parametrize("size", [10, 1013, 1014, 5000, 300_000])
def test_a_long_prompt_hides_no_member(size: int) -> None:
    """Members before and behind the text are read, however long it is."""
    body = b'{"model":"m","messages":[{"role":"user","content":"%b"}],"session_id":"s"}' % (b"x" * size)
    told = peek(body)
    assert (told.model, told.session) == ("m", ("session_id", "s"))


@pytest.mark.parametrize("slashes", range(6))
@pytest.mark.parametrize("text", ["", "x" * 1100, '"' * 3, '\\"' * 2])
def test_a_text_may_end_in_backslashes_and_quotes(text: str, slashes: int) -> None:
    """An escaped backslash before the closing quote does not escape the quote."""
    content = "x" * 1100 + text + "\\" * slashes
    for body in ({"messages": [{"content": content}], "model": "m"}, {"model": "m", "x": [{"content": content}] * 3}):
        assert peek(json.dumps(body, separators=(",", ":")).encode()).model == "m"
        assert peek(json.dumps(body).encode()).model == "m"


@given(st.binary(max_size=200))
def test_bytes_that_are_no_json_tell_nothing_or_what_they_say(tail: bytes) -> None:
    """No body is an error here: the engine judges it (R035)."""
    told = peek(b'{"messages":[{"content":"' + b"x" * 2000 + tail)
    assert told.model is None or isinstance(told.model, str)
