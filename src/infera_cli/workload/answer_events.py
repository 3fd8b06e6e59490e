"""What events of an answer hold, and whole answers; apart from their reader, which is compiled."""

from __future__ import annotations

from typing import Any

import msgspec


class Details(msgspec.Struct):
    """What of a prompt was cached."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """Tokens, as OpenAI and as Anthropic call them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class Delta(msgspec.Struct):
    """What a choice adds, or holds."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None
    refusal: Any = None
    function_call: Any = None       # of before there were tool calls


class Choice(msgspec.Struct):
    """One choice of a chunk or of a whole answer."""

    delta: Delta | None = None
    message: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class OpenAI(msgspec.Struct):
    """A chunk or a whole answer."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None


class Other(msgspec.Struct):
    """A chunk without choices, usage or `error`, which may be an error all the same."""

    object: Any = None
    type: Any = None
    message: Any = None
    code: Any = None

    @property
    def error(self) -> Any:
        """What is wrong, or None: `{"object": "error", "message": …, "code": …}`, as vLLM and SGLang say it."""
        named = "error" in (self.object, self.type) or (self.code is not None and self.message)
        return (self.message or self.code or "error") if named else None


class Block(msgspec.Struct):
    """A piece of content, or what is added to one."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    input: Any = None


class Message(msgspec.Struct):
    """The head of an answer."""

    usage: Usage | None = None


class Anthropic(msgspec.Struct):
    """An event or a whole answer."""

    type: str = ""
    message: Message | None = None
    delta: Block | None = None
    usage: Usage | None = None
    error: Any = None
    content: list[Block] | None = None
    stop_reason: str | None = None


decode_openai = msgspec.json.Decoder(OpenAI).decode
decode_other = msgspec.json.Decoder(Other).decode
decode_anthropic = msgspec.json.Decoder(Anthropic).decode
