"""A Responses request as a chat request.

The one rule for members is that of Messages: the API's own are translated or refused here, those that engines read in
a chat body pass, everything else stops here. What would need a memory of earlier responses is refused.
"""

from __future__ import annotations

from typing import Any

import msgspec

from infera_cli.protocol.members import Dropped, Object, as_type, bad, encode, optional, read_object, required_text
from infera_cli.protocol.messages.request import PASSED

_NUMBERS = {"max_output_tokens": ("max_tokens", int), "temperature": ("temperature", float), "top_p": ("top_p", float)}
_STATEFUL = ("previous_response_id", "conversation", "prompt")
_ECHOED = ("instructions", "max_output_tokens", "metadata", "temperature", "tool_choice", "tools", "top_p", "user")
_SCHEMA = ("name", "schema", "strict", "description")
_CONTENT = frozenset({"input_text", "output_text", "text", "refusal"})


class ResponseAsk(msgspec.Struct, frozen=True):
    """A translated request: the chat `body`, and what its answer must know; `echoed` members are repeated in it."""

    body: bytes
    model: str
    stream: bool
    echoed: dict[str, Any] = {}
    dropped: tuple[str, ...] = ()


def to_chat(body: bytes | bytearray, shown: str | None = None) -> ResponseAsk:
    """Translate a Responses body. `shown` is the client's name of the model, where the body has the engine's.

    Raises RequestError that names the member.
    """
    source = read_object(body)
    model = required_text(source, "model")
    stream = bool(optional(source, "stream", bool))
    _refuse_memory(source)
    dropped = Dropped()
    chat: Object = {"model": model, "messages": _messages(source, dropped)}
    for name, (theirs, kind) in _NUMBERS.items():
        value = optional(source, name, kind)
        if value is not None:
            chat[theirs] = value
    _add_tools(chat, source, dropped)
    _add_format(chat, source)
    effort = (optional(source, "reasoning", dict) or {}).get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    chat.update({name: source[name] for name in PASSED if source.get(name) is not None})
    if stream:
        chat["stream"] = True
        chat["stream_options"] = {"include_usage": True}
    echoed = {name: source.get(name) for name in _ECHOED} | {"parallel_tool_calls": _parallel(source)}
    return ResponseAsk(encode(chat), shown or model, stream, echoed, tuple(dropped.kinds))


def _refuse_memory(source: Object) -> None:
    for name in _STATEFUL:
        if source.get(name) is not None:
            raise bad(name, "is not supported: nothing is stored here, so send the whole conversation as input.")
    if source.get("background"):
        raise bad("background", "is not supported: the answer is given at once.")


def _parallel(source: Object) -> bool:
    return optional(source, "parallel_tool_calls", bool) is not False


# ── the conversation ─────────────────────────────────────────────────────────────────────────────────
def _messages(source: Object, dropped: Dropped) -> list[Object]:
    given = source.get("input")
    if given is None:
        raise bad("input", "is required.")
    turns: list[Object] = []
    instructions = optional(source, "instructions", str)
    if instructions:
        turns.append({"role": "system", "content": instructions})
    if isinstance(given, str):
        return [*turns, {"role": "user", "content": given}]
    if not isinstance(given, list):
        raise bad("input", "must be a string or a list of items.")
    for number, item in enumerate(given):
        where = f"input.{number}"
        _add_item(turns, as_type(item, dict, where), where, dropped)
    return turns


def _add_item(turns: list[Object], item: Object, where: str, dropped: Dropped) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        turns.append(_message(item, where, dropped))
    elif kind == "function_call":
        _add_call(turns, item, where)
    elif kind == "function_call_output":
        output = item.get("output")
        content = output if isinstance(output, str) else _joined(_parts(output, f"{where}.output", dropped))
        turns.append({"role": "tool", "tool_call_id": required_text(item, "call_id", f"{where}."), "content": content})
    elif kind == "item_reference":
        raise bad(f"{where}.type", "item_reference is not supported: nothing is stored here.")
    else:
        dropped.note(kind)


def _message(item: Object, where: str, dropped: Dropped) -> Object:
    role = required_text(item, "role", f"{where}.")
    if role not in {"user", "assistant", "system", "developer"}:
        raise bad(f"{where}.role", "must be user, assistant, system or developer.")
    content = item.get("content")
    if not isinstance(content, str):
        content = _joined(_parts(content, f"{where}.content", dropped))
    return {"role": "system" if role == "developer" else role, "content": content}


def _add_call(turns: list[Object], item: Object, where: str) -> None:
    """Calls belong to the assistant's turn before them, or make one."""
    function = {
        "name": required_text(item, "name", f"{where}."),
        "arguments": as_type(item.get("arguments", "{}"), str, f"{where}.arguments"),
    }
    call = {"id": required_text(item, "call_id", f"{where}."), "type": "function", "function": function}
    if not turns or turns[-1]["role"] != "assistant":
        turns.append({"role": "assistant", "content": None})
    turns[-1].setdefault("tool_calls", []).append(call)


def _parts(content: Any, where: str, dropped: Dropped) -> list[Object]:
    if not isinstance(content, list):
        raise bad(where, "must be a string or a list of parts.")
    found = []
    for number, part in enumerate(content):
        path = f"{where}.{number}"
        kind = as_type(as_type(part, dict, path).get("type"), str, f"{path}.type")
        if kind in _CONTENT:
            name = "refusal" if kind == "refusal" else "text"
            found.append({"type": "text", "text": as_type(part.get(name), str, f"{path}.{name}")})
        elif kind == "input_image":
            found.append({"type": "image_url", "image_url": {"url": required_text(part, "image_url", f"{path}.")}})
        elif kind in {"input_file", "input_audio"}:
            raise bad(f"{path}.type", f"{kind} is not supported.")
        else:
            dropped.note(kind)
    return found


def _joined(parts: list[Object]) -> str | list[Object]:
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


# ── tools and formats ────────────────────────────────────────────────────────────────────────────────
def _add_tools(chat: Object, source: Object, dropped: Dropped) -> None:
    tools = []
    for number, tool in enumerate(optional(source, "tools", list) or ()):
        where = f"tools.{number}"
        as_type(tool, dict, where)
        if tool.get("type") != "function":
            dropped.note(tool.get("type"))
            continue
        function = {"name": required_text(tool, "name", f"{where}.")}
        given = {name: tool[name] for name in ("description", "parameters", "strict") if tool.get(name) is not None}
        tools.append({"type": "function", "function": {**function, **given}})
    if not tools:
        return
    chat["tools"] = tools
    choice = source.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "function":
        name = required_text(choice, "name", "tool_choice.")
        chat["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif choice in ("auto", "none", "required"):
        chat["tool_choice"] = choice
    if not _parallel(source):
        chat["parallel_tool_calls"] = False


def _add_format(chat: Object, source: Object) -> None:
    wanted = (optional(source, "text", dict) or {}).get("format")
    if not isinstance(wanted, dict):
        return
    if wanted.get("type") == "json_object":
        chat["response_format"] = {"type": "json_object"}
    elif wanted.get("type") == "json_schema":
        schema = {name: wanted[name] for name in _SCHEMA if wanted.get(name) is not None}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
