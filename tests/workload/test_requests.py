"""Bodies that are sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infera_cli.errors import ConfigError
from infera_cli.workload import timing
from infera_cli.workload.items import Item, Turn
from infera_cli.workload.requests import Dialect, History, Shape, body, own


def made(shape: Shape, item: Item, salt: str = "") -> dict[str, Any]:
    history = History(item, salt)
    history.ask(item.turns[0])
    found: dict[str, Any] = json.loads(body(shape, item, item.turns[0], history))
    return found


ITEM = Item(turns=(Turn("hi", 5),), system="be kind")


def test_chat_asks_for_usage() -> None:
    """A streamed chat has system and user message, a length, and wants usage."""
    assert made(Shape("chat", "m"), ITEM) == {
        "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}],
        "model": "m", "stream": True, "max_tokens": 5, "stream_options": {"include_usage": True},
    }


def test_completions_are_one_text() -> None:
    """A completion joins what was said to one prompt; unstreamed it asks for no stream options."""
    assert made(Shape("completions", "m", stream=False), ITEM) == {
        "prompt": "be kind\nhi", "model": "m", "stream": False, "max_tokens": 5}


def test_messages_always_have_a_length() -> None:
    """Anthropic's max_tokens is mandatory and its system prompt a member of its own."""
    found = made(Shape("messages", "m"), Item(turns=(Turn("hi"),), system="be kind"))
    assert found["system"] == "be kind"
    assert found["max_tokens"] > 0
    assert "stream_options" not in found


def test_ignore_eos_fixes_the_length() -> None:
    """--ignore-eos sends ignore_eos and the same minimum as maximum."""
    found = made(Shape("chat", "m", ignore_eos=True, per_chunk_usage=True), ITEM)
    assert (found["ignore_eos"], found["min_tokens"], found["max_tokens"]) == (True, 5, 5)
    assert found["stream_options"]["continuous_usage_stats"] is True


def test_extra_body_has_the_last_word() -> None:
    """Members of --extra-body replace ours."""
    assert made(Shape("chat", "m", extra={"max_tokens": 1, "top_k": 3}), ITEM)["max_tokens"] == 1


def test_the_salt_begins_every_prompt() -> None:
    """A salt stands in front of the system prompt, or of a row's own messages or prompt."""
    assert made(Shape("chat", "m"), ITEM, "s1")["messages"][0]["content"] == "s1 be kind"
    own = Item(turns=(Turn("", None),), body={"messages": [{"role": "user", "content": "q"}], "top_p": 1})
    assert made(Shape("chat", "m"), own, "s1")["messages"][0] == {"role": "system", "content": "s1"}
    plain = Item(turns=(Turn("", None),), body={"prompt": "q"})
    assert made(Shape("completions", "m"), plain, "s1")["prompt"] == "s1 q"


def test_a_conversation_grows() -> None:
    """The second turn holds the first question and its answer."""
    item = Item(turns=(Turn("one", 5), Turn("two", 5)))
    history = History(item)
    history.ask(item.turns[0])
    history.answer("yes")
    history.ask(item.turns[1])
    found = json.loads(body(Shape("chat", "m"), item, item.turns[1], history))
    assert [message["content"] for message in found["messages"]] == ["one", "yes", "two"]


def test_server_timing_is_read_as_seconds() -> None:
    """Names with durations in milliseconds; what cannot be read is passed over."""
    assert timing.parse('queue;dur=1.5, pick;desc="x";dur="0.02", odd;dur=x, bare') == {"queue": 0.0015, "pick": 2e-05}


ASKED = {"role": "user", "content": "q"}
SYSTEM = {"role": "system", "content": "be kind"}
KIND = {"type": "text", "text": "be kind"}


@pytest.mark.parametrize(("dialect", "request_of_its_own", "sent"), [
    ("chat", {"prompt": "q"}, {"messages": [ASKED]}),
    ("completions", {"prompt": [1, 2]}, {"prompt": [1, 2]}),
    ("chat", {"messages": [SYSTEM, ASKED], "prompt": "q"}, {"messages": [SYSTEM, ASKED]}),
    ("messages", {"messages": [SYSTEM, ASKED]}, {"messages": [ASKED], "system": [KIND]}),
    ("messages", {"messages": [{"role": "system", "content": [KIND]}, ASKED], "system": "s"},
     {"messages": [ASKED], "system": [{"type": "text", "text": "s"}, KIND]}),
    ("messages", {"messages": [{"role": "system"}, ASKED], "system": None}, {"messages": [ASKED]}),
    ("messages", {"prompt": "q"}, {"messages": [ASKED]}),
])
def test_a_request_of_the_datasets_own_speaks_the_endpoints_language(
    dialect: Dialect, request_of_its_own: dict[str, Any], sent: dict[str, Any]
) -> None:
    """A prompt becomes a message, Anthropic's system prompt a member of its own; a salt begins either."""
    item = Item(turns=(Turn("", 4),), body={**request_of_its_own, "top_p": 1})
    found = made(Shape(dialect, "m", stream=False), item)
    assert found == {**sent, "top_p": 1, "model": "m", "stream": False, "max_tokens": 4}
    if dialect == "messages":
        salt = {"type": "text", "text": "s1"}
        assert made(Shape(dialect, "m"), item, "s1")["system"] == [salt, *sent.get("system", ())]


@pytest.mark.parametrize(("dialect", "request_of_its_own", "said"), [
    ("completions", {"messages": [ASKED]}, "has messages, which --endpoint completions does not take"),
    ("chat", {"prompt": [1, 2]}, "has a prompt that is a list, which --endpoint chat does not take"),
    ("messages", {"messages": [ASKED], "system": 5}, "has a system prompt that is no text"),
])
def test_a_request_that_the_endpoint_cannot_take_is_refused(
    dialect: Dialect, request_of_its_own: dict[str, Any], said: str
) -> None:
    """Before anything is sent, instead of a 400 for every request."""
    with pytest.raises(ConfigError, match=said):
        own(dialect, request_of_its_own)
