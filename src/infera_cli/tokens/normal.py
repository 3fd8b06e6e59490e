"""A chat request as the engine's template sees it: each engine's own way to tidy up first (engines §6.1, §6.2)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from infera_cli.tokens.template import ChatTemplate, Unrenderable

STYLES = ("vllm", "sglang", "atom", "pypto", "sim")

COMPLETIONS_WITH_SPECIALS = frozenset({"vllm", "sglang", "atom"})
CHAT_WITH_SPECIALS = frozenset({"atom"})


def messages_for(style: str, messages: Sequence[Mapping[str, Any]], template: ChatTemplate) -> list[dict[str, Any]]:
    """The messages as `style` hands them to the template. Raises Unrenderable."""
    tidy = _MESSAGE.get(style, _vllm_message)
    return [tidy(message, template) for message in messages]


def _vllm_message(message: Mapping[str, Any], template: ChatTemplate) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str):
        raise Unrenderable("request", "a message without a role")
    if role == "developer" and not template.knows_developer:
        role = "system"
    tidied: dict[str, Any] = {"role": role, "content": _content(message.get("content"), role, template)}
    if role == "assistant":
        calls = _tool_calls(message.get("tool_calls"))
        if calls:
            tidied["tool_calls"] = calls
        reasoning = message.get("reasoning", message.get("reasoning_content"))
        if reasoning is not None:
            tidied["reasoning"] = tidied["reasoning_content"] = reasoning
    if role == "tool" and "tool_call_id" in message:
        tidied["tool_call_id"] = message["tool_call_id"]
    if isinstance(message.get("name"), str):
        tidied["name"] = message["name"]
    return tidied


def _plain_message(message: Mapping[str, Any], template: ChatTemplate) -> dict[str, Any]:
    """As it came, but for what every template trips over."""
    tidied = dict(message)
    tidied["content"] = _content(message.get("content"), str(message.get("role")), template)
    calls = _tool_calls(message.get("tool_calls"))
    if calls:
        tidied["tool_calls"] = calls
    else:
        tidied.pop("tool_calls", None)
    return tidied


_MESSAGE = {"vllm": _vllm_message, "sglang": _plain_message, "atom": _plain_message, "pypto": _plain_message}


def _content(content: Any, role: str, template: ChatTemplate) -> Any:
    if content is None:
        return ""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if template.wants_parts and role != "tool" else content
    if not isinstance(content, list):
        raise Unrenderable("request", "content is neither text nor a list")
    texts = [_text(part) for part in content]
    if template.wants_parts and role != "tool":
        return [{"type": "text", "text": text} for text in texts]
    return "\n".join(texts)


def _text(part: Any) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text") if isinstance(part, Mapping) else None
    if not isinstance(text, str):
        raise Unrenderable("content", "a content part that is no text")
    return text


def _tool_calls(calls: Any) -> list[Any]:
    """Arguments as objects, as templates expect them."""
    if not isinstance(calls, list):
        return []
    tidied = []
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise Unrenderable("request", "a tool call without a function")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments) if arguments else {}
            except ValueError:
                raise Unrenderable("request", "tool arguments that are no JSON") from None
        tidied.append({**call, "function": {**function, "arguments": arguments}})
    return tidied


def tools_for(style: str, tools: Any) -> list[Any] | None:
    """The tools as `style` hands them to the template: its schema's members, in its order (S74, S77)."""
    if not isinstance(tools, list) or not tools:
        return None
    if style not in ("vllm", "sglang"):
        return tools
    return [_tool(style, tool) for tool in tools]


def _tool(style: str, tool: Any) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or "name" not in function:
        raise Unrenderable("request", "a tool without a function")
    order = ("name", "description", "parameters") if style == "vllm" else ("description", "name", "parameters")
    dumped = {key: function.get(key) for key in order}
    if style == "sglang":
        dumped["strict"] = bool(function.get("strict", False))
    elif function.get("strict") is not None:
        dumped["strict"] = function["strict"]
    return {"type": tool.get("type", "function"), "function": dumped}


def variables_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Template variables that a request may set. Raises Unrenderable for what engines treat in their own way."""
    if body.get("continue_final_message") or body.get("chat_template"):
        raise Unrenderable("request", "it continues a message, or brings its own template")
    given = body.get("chat_template_kwargs")
    variables = dict(given) if isinstance(given, Mapping) else {}
    for key in ("documents", "reasoning_effort"):
        if body.get(key) is not None:
            variables.setdefault(key, body[key])
    effort = variables.get("reasoning_effort")
    if effort is not None:
        variables.setdefault("enable_thinking", effort != "none")
    return variables
