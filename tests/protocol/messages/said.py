"""Words for the tests of the translators: what a client asks, what an engine says, and what the client then sees."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from infera_cli.protocol.messages.request import ChatAsk, to_chat
from infera_cli.protocol.messages.stream import MessageStream

DONE = b"data: [DONE]\n\n"


def ask(**members: Any) -> dict[str, Any]:
    """A Messages body; `members` replace or add."""
    return {"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}], **members}


def chat(**members: Any) -> Any:
    """The chat body that the engine reads."""
    return json.loads(translated(**members).body)


def translated(**members: Any) -> ChatAsk:
    return to_chat(json.dumps(ask(**members)).encode())


def of_turns(*turns: dict[str, Any], **members: Any) -> list[dict[str, Any]]:
    """The chat messages that these turns become."""
    messages: list[dict[str, Any]] = chat(messages=list(turns), **members)["messages"]
    return messages


def sse(*values: Any, done: bool = True) -> bytes:
    """A chat stream of these chunks."""
    events = b"".join(f"data: {json.dumps(value)}\n\n".encode() for value in values)
    return events + (DONE if done else b"")


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish, **more}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "e", "choices": [choice]}


def text(piece: str) -> dict[str, Any]:
    return chunk({"content": piece})


def tool(index: int, arguments: str | None = None, **named: Any) -> dict[str, Any]:
    """A piece of a tool call; `id` and `name` come with its first."""
    return chunk({"tool_calls": [call(index, arguments, **named)]})


def call(index: int, arguments: str | None = None, **named: Any) -> dict[str, Any]:
    function = {"name": named.get("name"), "arguments": arguments}
    given = {"id": named["id"]} if "id" in named else {}
    return {"index": index, "function": {key: value for key, value in function.items() if value is not None}, **given}


def usage(prompt: int, completion: int, cached: int | None = None) -> dict[str, Any]:
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **details}}


def streamed(*values: Any, done: Any = True, name: Any = "msg_1", **members: Any) -> list[dict[str, Any]]:
    """The events that a client sees of a chat stream that ends properly."""
    stream = MessageStream(translated(stream=True, **members), name)
    return events(stream.feed(sse(*values, done=done)) + stream.flush())


def events(body: bytes) -> list[dict[str, Any]]:
    """The events of a Messages stream; each is framed exactly so, and named after its type."""
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        first, second = block.split("\n")
        value = json.loads(second.removeprefix("data: "))
        assert first == f"event: {value['type']}"
        found.append(value)
    assert not body or body.endswith(b"\n\n")
    return found


def types(seen: Iterable[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("content_block_") for event in seen]


def assert_grammar(seen: list[dict[str, Any]]) -> None:
    """message_start (block_start block_delta* block_stop)* message_delta message_stop, indexes rising by one."""
    body = [event for event in seen if event["type"] != "ping"]
    assert [event["type"] for event in (body[0], *body[-2:])] == ["message_start", "message_delta", "message_stop"]
    at, is_open = -1, False
    for event in body[1:-2]:
        kind = event["type"]
        if kind == "content_block_start":
            assert not is_open
            at, is_open = at + 1, True
        else:
            assert is_open
            assert kind in {"content_block_delta", "content_block_stop"}
            is_open = kind == "content_block_delta"
        assert event["index"] == at
    assert not is_open


def gathered(seen: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the events add up to, as an SDK would have it."""
    message: dict[str, Any] = {}
    parts: dict[int, str] = {}
    for event in seen:
        kind = event["type"]
        if kind == "message_start":
            message = dict(event["message"], content=[])
        elif kind == "content_block_start":
            message["content"].append(dict(event["content_block"]))
        elif kind == "content_block_delta":
            _extend(message["content"][event["index"]], event, parts)
        elif kind == "message_delta":
            message |= {**event["delta"], "usage": event["usage"]}
    for index, joined in parts.items():
        message["content"][index]["input"] = json.loads(joined)
    return message


def _extend(block: dict[str, Any], event: dict[str, Any], parts: dict[int, str]) -> None:
    delta = event["delta"]
    if delta["type"] == "input_json_delta":
        parts[event["index"]] = parts.get(event["index"], "") + delta["partial_json"]
    else:
        name = {"text_delta": "text", "thinking_delta": "thinking"}[delta["type"]]
        block[name] += delta[name]
