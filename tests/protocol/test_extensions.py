"""`x-inferact`: what it may say, and how it leaves the body (replica-router §2.2, §2.7)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.errors import RequestError
from infera_cli.protocol import extensions
from infera_cli.protocol.extensions import Extensions, read, without


def test_members_are_read() -> None:
    """node_affinity, kv_prefix_hint and a priority from 0 to 10; absent ones have their defaults."""
    assert read({"node_affinity": "n1", "kv_prefix_hint": "sys_v3", "priority": 0}) == Extensions("n1", "sys_v3", 0)
    assert read({}) == Extensions(None, None, 5)
    assert read({"priority": 10}).priority == 10


@pytest.mark.parametrize(
    ("value", "member"),
    [
        (None, "x-inferact"), ([], "x-inferact"), ("x", "x-inferact"), (5, "x-inferact"),
        ({"priority": 11}, "x-inferact.priority"), ({"priority": -1}, "x-inferact.priority"),
        ({"priority": True}, "x-inferact.priority"), ({"priority": 5.0}, "x-inferact.priority"),
        ({"priority": "5"}, "x-inferact.priority"), ({"priority": None}, "x-inferact.priority"),
        ({"node_affinity": 1}, "x-inferact.node_affinity"), ({"node_affinity": ""}, "x-inferact.node_affinity"),
        ({"kv_prefix_hint": "x" * 257}, "x-inferact.kv_prefix_hint"),
        ({"kv_prefix_hint": ["a"]}, "x-inferact.kv_prefix_hint"),
        ({"prioriti": 5}, "x-inferact.prioriti"),
    ],
)  # fmt: skip
def test_malformed_is_400_naming_the_member(value: Any, member: str) -> None:
    """A wrong type, a value out of range or an unknown member is the client's fault, and named."""
    with pytest.raises(RequestError) as fault:
        read(value)
    assert (fault.value.status, fault.value.param) == (400, member)
    assert fault.value.message.startswith(member)


CASES = [
    '{"a":1,"x-inferact":{"priority":3,"k":[1,{"x":"}"}]},"b":2}',
    '{"x-inferact":{"priority":3},"b":2}',
    '{ "b":2 , "x-inferact" : {} }',
    '{"x-inferact":{}}',
    '{"m":{"x-inferact":1},"x-inferact":{},"q":"\\"x-inferact\\": {"}',
    '{"x\\u002dinferact":{},"q":"a,b"}',
    '{"x-inferact":1,"a":2,"x-inferact":{},"q":"a,b"}',
    '{"a":[[["x-inferact",{}]]],"x-inferact":{"priority":1}}',
]


@pytest.mark.parametrize("body", CASES)
def test_only_the_outermost_member_is_cut(body: str) -> None:
    """The rest is equal as JSON, and what stands inside strings and other objects stays."""
    expected = json.loads(body)
    del expected["x-inferact"]
    assert json.loads(without(body.encode())) == expected


def test_all_other_bytes_stay_as_they_are() -> None:
    """Numbers, escapes, blanks and order are not rewritten."""
    body = b'{"t":1.50e0, "s":"\\u00e9\\/",\n "x-inferact":{"priority":1}, "n":[ 1 ,2 ], "t":2}'
    assert without(body) == b'{"t":1.50e0, "s":"\\u00e9\\/", "n":[ 1 ,2 ], "t":2}'


def test_a_body_without_it_is_unchanged() -> None:
    """Forwarded byte for byte."""
    body = b'{"a" : 1, "messages": [{"x-inferact": {}}]}'
    assert without(body) == body


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=6), JSON, max_size=4), JSON, st.integers(0, 4), st.sampled_from([None, 1]))
def test_cutting_any_object_leaves_the_others(members: dict[str, Any], value: Any, at: int, indent: int | None) -> None:
    """Wherever it stands and whatever it holds, exactly that member is gone."""
    members.pop(extensions.NAME, None)
    pairs = list(members.items())
    pairs.insert(at, (extensions.NAME, value))
    body = json.dumps(dict(pairs), indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert json.loads(without(body).decode("utf-8", "surrogatepass")) == members
