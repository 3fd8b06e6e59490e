"""Members that tell an engine how long a prompt stays; all else of a body keeps its bytes (infera-wire §4.6)."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.protocol.retention import with_hint

BODY = b'{ "model" : "m", "messages":[{"role":"user","content":"a {\\"priority\\":1} b"}],"seed":1.50}'


def told(body: bytes, engine: str, hint: Any = "long") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(with_hint(body, engine, hint))
    return found


@pytest.mark.parametrize(("hint", "priority"), [("none", 0), ("short", 50), ("long", 100)])
def test_sglang_gets_a_priority_and_the_word(hint: Any, priority: int) -> None:
    """The two members are new, the rest is as it was."""
    assert told(BODY, "sglang", hint) == {**json.loads(BODY), "priority": priority, "infera_retention": hint}


def test_vllm_gets_it_among_the_transfer_parameters() -> None:
    """And no member of ours besides (C16)."""
    assert told(BODY, "vllm") == {**json.loads(BODY), "kv_transfer_params": {"infera_retention": "long"}}


@pytest.mark.parametrize("engine", ["atom", "pypto"])
def test_other_engines_get_the_body_as_it_is(engine: str) -> None:
    """Nobody there would read it."""
    assert with_hint(BODY, engine, "long") == BODY


def test_what_the_client_says_wins() -> None:
    """A priority, a word or a parameter of its own stays; what it left out is added."""
    own = b'{"priority":7,"model":"m"}'
    assert told(own, "sglang") == {"priority": 7, "model": "m", "infera_retention": "long"}
    own = b'{"model":"m","kv_transfer_params":{"infera_retention":"none"}}'
    assert with_hint(own, "vllm", "long") == own
    for own, all_of_it in ((b'{"a":1}', {"infera_retention": "long", "a": 1}), (b"{ }", {"infera_retention": "long"})):
        assert told(b'{"kv_transfer_params": %b}' % own, "vllm")["kv_transfer_params"] == all_of_it


@pytest.mark.parametrize(
    "body",
    [b'{"kv_transfer_params":null}', b'{"tools":[{"kv_transfer_params":{"a":1}}],"kv_transfer_params":{"a":1}}',
     b"[1]", b"nothing", b"", b'"x"'],
)  # fmt: skip
def test_in_doubt_nothing_is_added(body: bytes) -> None:
    """No object, a null, or two places that look alike: the body goes as it came."""
    assert with_hint(body, "vllm", "long") == body


VALUES = st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5)


@given(st.dictionaries(st.text(max_size=5), VALUES))
def test_any_object_keeps_its_members(document: dict[str, Any]) -> None:
    """Whatever else an object holds, it holds it afterwards, and the bytes after the first brace are the same."""
    raw = json.dumps(document, indent=random.Random(len(document)).choice((None, 2))).encode()
    hinted = with_hint(raw, "sglang", "short")
    assert json.loads(hinted) == {"priority": 50, "infera_retention": "short", **document}
    assert hinted.endswith(raw[1:])
