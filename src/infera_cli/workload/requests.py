"""From an item to the body that is sent, for chat, completions and Anthropic messages."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from infera_cli.errors import ConfigError
from infera_cli.workload.items import Item, Turn

Dialect = Literal["chat", "completions", "messages"]
PATHS: dict[Dialect, str] = {
    "chat": "/v1/chat/completions", "completions": "/v1/completions", "messages": "/v1/messages",
}
_FALLBACK_OUTPUT = 1024  # Anthropic's max_tokens is mandatory


class Shape(msgspec.Struct, frozen=True):
    """What all requests of a run have in common.

    `extra` is merged over the body last. `per_chunk_usage` asks for `continuous_usage_stats`, which tells
    how many tokens a chunk holds.
    """

    dialect: Dialect
    model: str
    stream: bool = True
    ignore_eos: bool = False
    per_chunk_usage: bool = False
    extra: dict[str, Any] = {}


class History:
    """What was said so far in one conversation; `salt` begins it, so that no cache knows the prompt."""

    def __init__(self, item: Item, salt: str = "") -> None:
        self.system = " ".join(part for part in (salt, item.system) if part)
        self.said: list[tuple[str, str]] = []

    def ask(self, turn: Turn) -> None:
        """The user's next message."""
        self.said.append(("user", turn.text))

    def answer(self, text: str) -> None:
        """The assistant's answer, as it came or as recorded."""
        self.said.append(("assistant", text))


def body(shape: Shape, item: Item, turn: Turn, history: History) -> bytes:
    """The JSON body for `turn`, whose text `history` already holds."""
    content = own(shape.dialect, item.body) if item.body is not None else _content(shape.dialect, history)
    if item.body is not None and history.system:
        _begin_with(shape.dialect, content, history.system)
    content["model"] = shape.model
    content["stream"] = shape.stream
    _lengths(shape, turn, content)
    if shape.stream and shape.dialect != "messages":
        content["stream_options"] = {"include_usage": True}
        if shape.per_chunk_usage:
            content["stream_options"]["continuous_usage_stats"] = True
    content.update(shape.extra)
    return msgspec.json.encode(content)


def _content(dialect: Dialect, history: History) -> dict[str, Any]:
    if dialect == "completions":
        said = [text for _role, text in history.said]
        return {"prompt": "\n".join([history.system, *said] if history.system else said)}
    messages = [{"role": role, "content": text} for role, text in history.said]
    if not history.system:
        return {"messages": messages}
    if dialect == "messages":
        return {"system": history.system, "messages": messages}
    return {"messages": [{"role": "system", "content": history.system}, *messages]}


def own(dialect: Dialect, request: dict[str, Any]) -> dict[str, Any]:
    """A dataset's own request as `dialect` has it. Raises ConfigError for one that it cannot say."""
    made = dict(request)
    if dialect == "completions":
        if "prompt" not in made:
            raise ConfigError("has messages, which --endpoint completions does not take: give --endpoint chat")
        return made
    if "messages" not in made:
        prompt = made.pop("prompt")
        if not isinstance(prompt, str):
            raise ConfigError(f"has a prompt that is a list, which --endpoint {dialect} does not take: "
                              f"give --endpoint completions")
        made["messages"] = [{"role": "user", "content": prompt}]
    made.pop("prompt", None)
    return _with_system_apart(made) if dialect == "messages" else made


def _with_system_apart(request: dict[str, Any]) -> dict[str, Any]:
    """Anthropic's form: system texts are blocks of a member of their own. Raises ConfigError for what is no text."""
    said = [one.get("content") for one in request["messages"] if one.get("role") == "system"]
    own_words = request.pop("system", None)
    blocks = [block for content in (own_words, *said) for block in _blocks(content)]
    request["messages"] = [one for one in request["messages"] if one.get("role") != "system"]
    if blocks:
        request["system"] = blocks
    return request


def _blocks(content: Any) -> list[Any]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return content
    raise ConfigError("has a system prompt that is no text")


def _begin_with(dialect: Dialect, content: dict[str, Any], salt: str) -> None:
    """Put the salt in front of a dataset's own request."""
    if isinstance(content.get("prompt"), str):
        content["prompt"] = f"{salt} {content['prompt']}"
    elif dialect != "messages":
        if "messages" in content:
            content["messages"] = [{"role": "system", "content": salt}, *content["messages"]]
    else:
        content["system"] = [*_blocks(salt), *content.get("system", ())]


def _lengths(shape: Shape, turn: Turn, content: dict[str, Any]) -> None:
    if turn.output is not None:
        content.pop("max_completion_tokens", None)
        content["max_tokens"] = turn.output
    elif shape.dialect == "messages":
        content.setdefault("max_tokens", _FALLBACK_OUTPUT)
    if shape.ignore_eos:
        content["ignore_eos"] = True
        if turn.output is not None and shape.dialect != "messages":
            content["min_tokens"] = turn.output
