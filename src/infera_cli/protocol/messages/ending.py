"""Why an answer ended and what it took, in Anthropic's words (infera-wire §7.2; R040, R049)."""

from __future__ import annotations

from typing import Any

from infera_cli.protocol.chat import Usage
from infera_cli.protocol.messages.request import ChatAsk

Reason = tuple[str | None, str | None]
"""stop_reason and stop_sequence."""


def stop_reason(finish: str | None, stopped_by: Any, ask: ChatAsk, *, tools: bool) -> Reason:
    """Why the answer ended.

    A tool call was made: the client must run it, whatever the engine calls that; only a cut answer says so first.
    """
    if finish == "length":
        return "max_tokens", None
    if tools:
        return "tool_use", None
    if isinstance(stopped_by, str) and stopped_by in ask.stops:
        return "stop_sequence", stopped_by
    return (None if finish is None else "end_turn"), None


def usage_of(usage: Usage) -> dict[str, int]:
    """Anthropic's `usage`: tokens from the cache are not input tokens."""
    return {
        "input_tokens": usage.prompt - usage.cached,
        "output_tokens": usage.completion,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
    }


def message_id(request: str) -> str:
    """The name of the answer to the request of that id; the same streamed and not (R062)."""
    return "msg_" + request[:24]


def message(name: str, ask: ChatAsk, content: list[Any], reason: Reason, usage: Usage) -> dict[str, Any]:
    """A `message` object."""
    return {
        "id": name, "type": "message", "role": "assistant", "model": ask.model, "content": content,
        "stop_reason": reason[0], "stop_sequence": reason[1], "usage": usage_of(usage),
    }  # fmt: skip
