"""A whole chat completion as a message (infera-wire §7.2)."""

from __future__ import annotations

from hashlib import blake2s
from typing import Any

import msgspec

from infera_cli.protocol.chat import BROKEN_OFF, NO_USAGE, Call, read_completion
from infera_cli.protocol.messages.ending import message, stop_reason
from infera_cli.protocol.messages.request import ChatAsk


def to_message(body: bytes, ask: ChatAsk, name: str) -> bytes:
    """The message called `name`. Raises ValueError when `body` is no chat completion or was broken off."""
    answer = read_completion(body)
    choice = answer.choices[0]
    if choice.finish_reason in BROKEN_OFF:
        raise ValueError(f"the engine ended its answer with {choice.finish_reason}")
    said = choice.message
    content: list[dict[str, Any]] = []
    thought = said.reasoning_content or said.reasoning
    if thought and ask.thinking:
        content.append({"type": "thinking", "thinking": thought, "signature": ""})
    text = said.content or said.refusal
    if text:
        content.append({"type": "text", "text": text})
    calls = [call for call in said.tool_calls or () if call.function is not None and call.function.name]
    content.extend(_tool_use(call, name, number) for number, call in enumerate(calls))
    if not content:
        content.append({"type": "text", "text": ""})
    reason = stop_reason(choice.finish_reason, choice.stop_reason, ask, tools=bool(calls))
    return msgspec.json.encode(message(name, ask, content, reason, answer.usage or NO_USAGE))


def tool_id(given: str | None, name: str, number: int) -> str:
    """The engine's id of a call, exactly; one of ours where it gave none."""
    return given or "toolu_" + blake2s(f"{name}.{number}".encode()).hexdigest()[:20]


def _tool_use(call: Call, name: str, number: int) -> dict[str, Any]:
    assert call.function is not None  # noqa: S101 - chosen by the caller
    return {
        "type": "tool_use", "id": tool_id(call.id, name, number), "name": call.function.name,
        "input": _arguments(call.function.arguments or ""),
    }  # fmt: skip


def _arguments(text: str) -> dict[str, Any]:
    """Arguments that are no JSON object become an empty one."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
