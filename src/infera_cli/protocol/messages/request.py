"""A Messages request as a chat request (infera-wire §7.1; rulings 19).

The one rule for members: those of the Messages API are translated by the table of the sheet, those of `PASSED`
are known to engines and pass as they are, everything else stops here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from infera_cli.protocol.members import Dropped, Object, as_type, bad, encode, optional, read_object, required_text
from infera_cli.protocol.messages.blocks import assistant_message, blocks_of, text_of, user_messages

PASSED = (
    "seed", "min_p", "min_tokens", "ignore_eos", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "priority", "cache_salt", "chat_template_kwargs", "structured_outputs", "logit_bias",
)  # fmt: skip
"""Members that are not Anthropic's, and that engines read in a chat body."""

_NUMBERS = {"max_tokens": int, "temperature": float, "top_p": float, "top_k": int}
ATTRIBUTION = "x-anthropic-billing-header:"
"""How the block begins that coding agents put first in `system`: it changes with every version and is no prompt."""


class ChatAsk(msgspec.Struct, frozen=True):
    """A translated request: the chat `body`, and what its answer must know.

    `model` is the one the client asked for; `thinking` says that reasoning may be shown; `dropped` names kinds of
    blocks and tools that the engine is not told of.
    """

    body: bytes
    model: str
    stream: bool
    thinking: bool
    stops: tuple[str, ...] = ()
    max_tokens: int | None = None
    dropped: tuple[str, ...] = ()


def to_chat(body: bytes | bytearray, shown: str | None = None) -> ChatAsk:
    """Translate a Messages body. `shown` is the client's name of the model, where the body has the engine's.

    Raises RequestError that names the member.
    """
    source = read_object(body)
    model = required_text(source, "model")
    stream = bool(optional(source, "stream", bool))
    thinking = _thinking(source)
    dropped = Dropped()
    chat: Object = {"model": model, "messages": _messages(source, dropped)}
    for name, kind in _NUMBERS.items():
        value = optional(source, name, kind)
        if value is not None:
            chat[name] = value
    stops = _stops(source)
    if stops:
        chat["stop"] = stops
    user = _user(source)
    if user is not None:
        chat["user"] = user
    chat.update({name: source[name] for name in PASSED if source.get(name) is not None})
    _add_tools(chat, source, dropped)
    _add_thinking(chat, thinking)
    _add_format(chat, source)
    if stream:
        chat["stream"] = True
        chat["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    if _is_prefill(chat["messages"]):
        chat["continue_final_message"], chat["add_generation_prompt"] = True, False
    return ChatAsk(
        body=encode(chat), model=shown or model, stream=stream, thinking=thinking is True, stops=tuple(stops),
        max_tokens=chat.get("max_tokens"), dropped=tuple(dropped.kinds),
    )  # fmt: skip


def to_tokenize(body: bytes | bytearray) -> ChatAsk:
    """A count_tokens body as an engine's `/tokenize` request for the same chat (engines.md §1.5)."""
    source = read_object(body)
    model = required_text(source, "model")
    dropped = Dropped()
    asked: Object = {"model": model, "messages": _messages(source, dropped), "add_generation_prompt": True}
    _add_tools(asked, source, dropped)
    asked.pop("tool_choice", None)
    asked.pop("parallel_tool_calls", None)
    return ChatAsk(encode(asked), model, False, False, dropped=tuple(dropped.kinds))


# ── the conversation ─────────────────────────────────────────────────────────────────────────────────
def _messages(source: Object, dropped: Dropped) -> list[Object]:
    given = source.get("messages")
    if given is None:
        raise bad("messages", "is required.")
    if not as_type(given, list, "messages"):
        raise bad("messages", "must hold at least one message.")
    system = _system_texts(source.get("system"), "system", dropped) if source.get("system") is not None else []
    turns: list[Object] = []
    for number, message in enumerate(given):
        where = f"messages.{number}"
        as_type(message, dict, where)
        role = as_type(message.get("role"), str, f"{where}.role")
        content = message.get("content")
        if content is None:
            raise bad(f"{where}.content", "is required.")
        if role == "user":
            turns.extend(_in_order_of_calls(user_messages(content, f"{where}.content", dropped), turns))
        elif role == "assistant":
            turns.append(assistant_message(content, f"{where}.content", dropped))
        elif role in {"system", "developer"}:  # agents put one behind the user's turn; templates want it first (R052)
            system.extend(_system_texts(content, f"{where}.content", dropped))
        else:
            dropped.note(f"role {role}")
    if system:
        turns.insert(0, {"role": "system", "content": "\n".join(system)})
    return turns


def _system_texts(system: Any, where: str, dropped: Dropped) -> list[str]:
    if isinstance(system, str):
        lines = system.split("\n")
        while lines and lines[0].startswith(ATTRIBUTION):
            del lines[0]
        return ["\n".join(lines)] if lines and (len(lines) > 1 or lines[0]) else []
    texts = []
    for path, block in blocks_of(system, where):
        if block["type"] != "text":
            dropped.note(block["type"])
            continue
        text = text_of(block, path)
        if not text.startswith(ATTRIBUTION):
            texts.append(text)
    return texts


def _in_order_of_calls(messages: list[Object], before: list[Object]) -> list[Object]:
    """Results in the order in which the tools were called: some templates match them by place."""
    calls = before[-1].get("tool_calls", ()) if before else ()
    place = {call["id"]: number for number, call in enumerate(calls)}
    last = len(place)
    results = [message for message in messages if message["role"] == "tool"]
    results.sort(key=lambda message: place.get(message["tool_call_id"], last))
    return results + messages[len(results) :]


def _is_prefill(messages: list[Object]) -> bool:
    """The client wrote the beginning of the answer: the engine goes on with it."""
    last = messages[-1] if messages else {}
    return last.get("role") == "assistant" and bool(last.get("content")) and "tool_calls" not in last


# ── everything else ──────────────────────────────────────────────────────────────────────────────────
def _stops(source: Object) -> list[str]:
    given = optional(source, "stop_sequences", list) or []
    return [as_type(stop, str, f"stop_sequences.{number}") for number, stop in enumerate(given)]


def _user(source: Object) -> str | None:
    metadata = optional(source, "metadata", dict) or {}
    user: str | None = optional(metadata, "user_id", str, "metadata.")
    return user


def _add_tools(chat: Object, source: Object, dropped: Dropped) -> None:
    tools = []
    for number, tool in enumerate(optional(source, "tools", list) or ()):
        where = f"tools.{number}"
        as_type(tool, dict, where)
        if tool.get("type") not in (None, "custom"):
            dropped.note(tool["type"])  # a tool that Anthropic's own servers run or describe
            continue
        function: Object = {"name": required_text(tool, "name", f"{where}.")}
        function["parameters"] = as_type(tool.get("input_schema"), dict, f"{where}.input_schema")
        description = optional(tool, "description", str, f"{where}.")
        if description:
            function["description"] = description
        if optional(tool, "strict", bool, f"{where}."):
            function["strict"] = True
        tools.append({"type": "function", "function": function})
    choice = optional(source, "tool_choice", dict)
    if tools:
        chat["tools"] = tools
        _add_choice(chat, choice or {})


def _add_choice(chat: Object, choice: Object) -> None:
    """`any` is OpenAI's `required`; choices that are not known are left out (R050)."""
    kind = optional(choice, "type", str, "tool_choice.")
    if kind == "tool":
        name = required_text(choice, "name", "tool_choice.")
        chat["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif kind in {"auto", "any", "none"}:
        chat["tool_choice"] = "required" if kind == "any" else kind
    if choice.get("disable_parallel_tool_use") is True:
        chat["parallel_tool_calls"] = False


def _thinking(source: Object) -> bool | None:
    """Whether the client wants reasoning; None where it says nothing."""
    thinking = optional(source, "thinking", dict)
    if thinking is None:
        return None
    kind = as_type(thinking.get("type"), str, "thinking.type")
    return bool(kind != "disabled")


def _add_thinking(chat: Object, thinking: bool | None) -> None:
    """Templates of reasoning models read `enable_thinking`; others ignore it. What the client set itself stays."""
    if thinking is None:
        return
    given = chat.get("chat_template_kwargs")
    chat["chat_template_kwargs"] = {"enable_thinking": thinking, **(given if isinstance(given, dict) else {})}


def _add_format(chat: Object, source: Object) -> None:
    config = optional(source, "output_config", dict) or {}
    wanted = config.get("format") or source.get("output_format")
    if not isinstance(wanted, dict) or wanted.get("type") != "json_schema":
        return
    schema = as_type(wanted.get("schema"), dict, "output_config.format.schema")
    chat["response_format"] = {"type": "json_schema", "json_schema": {"name": "output", "schema": schema}}
