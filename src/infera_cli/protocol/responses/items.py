"""What a response is made of: its items, its usage, and the response around them."""

from __future__ import annotations

from hashlib import blake2s
from typing import Any

from infera_cli.protocol.chat import NO_USAGE, Usage
from infera_cli.protocol.responses.request import ResponseAsk

Item = dict[str, Any]


def response_id(request: str) -> str:
    """The name of the answer to the request of that id."""
    return "resp_" + request


def item_id(prefix: str, response: str, number: int) -> str:
    """The name of an item, made from its place."""
    return prefix + blake2s(f"{response}.{number}".encode()).hexdigest()[:24]


def text_part(text: str) -> Item:
    """A part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message_item(name: str, text: str | None, status: str) -> Item:
    """A message; without text yet where that is None."""
    content = [] if text is None else [text_part(text)]
    return {"id": name, "type": "message", "role": "assistant", "status": status, "content": content}


def call_item(name: str, call: str, tool: str, arguments: str, status: str) -> Item:
    """A call of a function."""
    return {
        "id": name, "type": "function_call", "call_id": call, "name": tool, "arguments": arguments, "status": status
    }  # fmt: skip


def reasoning_item(name: str, text: str | None, status: str) -> Item:
    """Reasoning, told as it is."""
    content = [] if text is None else [{"type": "reasoning_text", "text": text}]
    return {"id": name, "type": "reasoning", "summary": [], "content": content, "status": status}


def usage_of(usage: Usage) -> Item:
    """The API's own names of the numbers."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    }


def response(
    name: str, ask: ResponseAsk, created: Any, status: str, *, output: list[Item] | None = None,
    usage: Usage = NO_USAGE, error: str | None = None,
) -> Item:  # fmt: skip
    """The whole object; `status` is in_progress, completed, incomplete or failed."""
    echoed = ask.echoed
    return {
        "id": name, "object": "response", "created_at": created if type(created) is int else 0, "status": status,
        "error": None if error is None else {"code": "server_error", "message": error},
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": echoed.get("instructions"), "max_output_tokens": echoed.get("max_output_tokens"),
        "metadata": echoed.get("metadata") or {}, "model": ask.model, "output": output or [],
        "parallel_tool_calls": echoed.get("parallel_tool_calls", True), "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None}, "store": False, "temperature": echoed.get("temperature"),
        "text": {"format": {"type": "text"}}, "tool_choice": echoed.get("tool_choice") or "auto",
        "tools": echoed.get("tools") or [], "top_p": echoed.get("top_p"), "truncation": "disabled",
        "usage": None if status == "in_progress" else usage_of(usage), "user": echoed.get("user"),
    }  # fmt: skip


def status_of(finish: str | None) -> str:
    """How a finish reason is called."""
    return "incomplete" if finish == "length" else "completed"
