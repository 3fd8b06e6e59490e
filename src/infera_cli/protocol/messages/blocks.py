"""Content blocks of a conversation as chat messages: text, images, tools, results, thinking (infera-wire §7.1).

What an engine cannot be told is refused (`audio`, `video`, a document that is no text) or dropped and noted by
its type (anything unknown): R053, R055.
"""

from __future__ import annotations

from hashlib import blake2s
from typing import Any

import msgspec

from infera_cli.protocol.members import Dropped, Object, as_type, bad, required_text

REFUSED = frozenset({"audio", "video", "document", "image"})
"""Kinds of block that must not be lost in silence; those that can be told are read before this is asked."""


def blocks_of(content: Any, where: str) -> list[tuple[str, Object]]:
    """The blocks of a list, each with its path. Raises RequestError."""
    if not isinstance(content, list):
        raise bad(where, "must be a string or a list of blocks.")
    found = []
    for number, block in enumerate(content):
        path = f"{where}.{number}"
        as_type(block, dict, path)
        as_type(block.get("type"), str, f"{path}.type")
        found.append((path, block))
    return found


def text_of(block: Object, where: str) -> str:
    """The text of a text block. Raises RequestError."""
    text: str = as_type(block.get("text"), str, f"{where}.text")
    return text


# ── what the user says ───────────────────────────────────────────────────────────────────────────────
def user_messages(content: Any, where: str, dropped: Dropped) -> list[Object]:
    """The tool messages of one user turn, next to each other, then one user message with the rest (R055)."""
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    results: list[Object] = []
    parts: list[Object] = []
    for path, block in blocks_of(content, where):
        if block["type"] == "tool_result":
            results.append(_tool_message(block, path, parts, dropped))
        else:
            _add_part(block, path, parts, dropped)
    if parts or not results:
        results.append({"role": "user", "content": joined(parts)})
    return results


def joined(parts: list[Object]) -> str | list[Object]:
    """Text alone is one string, its pieces on lines of their own; with images the parts stay parts."""
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _add_part(block: Object, where: str, parts: list[Object], dropped: Dropped) -> None:
    kind = block["type"]
    if kind == "text":
        parts.append({"type": "text", "text": text_of(block, where)})
    elif kind == "image":
        parts.append(image_part(block, where))
    elif kind == "document":
        parts.append({"type": "text", "text": _document_text(block, where)})
    elif kind in REFUSED:
        raise bad(f"{where}.type", f"{kind} blocks are not supported.")
    else:
        dropped.note(kind)


def _tool_message(block: Object, where: str, parts: list[Object], dropped: Dropped) -> Object:
    """One result; its images go to the user message, since templates know none in a tool's turn."""
    name = required_text(block, "tool_use_id", f"{where}.")
    content = block.get("content")
    if content is None:
        content = ""
    if not isinstance(content, str):
        inside: list[Object] = []
        for path, item in blocks_of(content, f"{where}.content"):
            _add_part(item, path, inside, dropped)
        content = "\n".join(part["text"] for part in inside if part["type"] == "text")
        parts.extend(part for part in inside if part["type"] != "text")
    return {"role": "tool", "tool_call_id": name, "content": content}


def image_part(block: Object, where: str) -> Object:
    """An image, as a data URL or as the URL it has. Raises RequestError."""
    source = as_type(block.get("source"), dict, f"{where}.source")
    kind = source.get("type")
    if kind == "url":
        url = required_text(source, "url", f"{where}.source.")
    elif kind == "base64":
        media = required_text(source, "media_type", f"{where}.source.")
        if not media.startswith("image/"):
            raise bad(f"{where}.source.media_type", "must be image/….")
        url = f"data:{media};base64,{as_type(source.get('data'), str, f'{where}.source.data')}"
    else:
        raise bad(f"{where}.source.type", "must be base64 or url.")
    return {"type": "image_url", "image_url": {"url": url}}


def _document_text(block: Object, where: str) -> str:
    source = block.get("source")
    if not isinstance(source, dict) or source.get("type") != "text":
        raise bad(f"{where}.type", "document blocks are supported with a text source only.")
    text: str = as_type(source.get("data"), str, f"{where}.source.data")
    return text


# ── what the assistant said ──────────────────────────────────────────────────────────────────────────
def assistant_message(content: Any, where: str, dropped: Dropped) -> Object:
    """One assistant turn: text on lines of its own, tool calls, reasoning; no empty lists or keys (R037)."""
    if isinstance(content, str):
        return {"role": "assistant", "content": content}
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Object] = []
    for path, block in blocks_of(content, where):
        kind = block["type"]
        if kind == "text":
            texts.append(text_of(block, path))
        elif kind == "tool_use":
            calls.append(_call(block, path))
        elif kind == "thinking":
            thoughts.append(as_type(block.get("thinking"), str, f"{path}.thinking"))
        elif kind in REFUSED:
            raise bad(f"{path}.type", f"{kind} blocks are not supported in an assistant turn.")
        elif kind != "redacted_thinking":
            dropped.note(kind)
    message: Object = {"role": "assistant", "content": "\n".join(texts) if texts or not calls else None}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: Object, where: str) -> Object:
    name = required_text(block, "name", f"{where}.")
    given = block.get("id")
    made = given if isinstance(given, str) and given else "call_" + blake2s(where.encode()).hexdigest()[:24]
    arguments = as_type(block.get("input", {}), dict, f"{where}.input")
    return {
        "id": made, "type": "function",
        "function": {"name": name, "arguments": msgspec.json.encode(arguments).decode()},
    }  # fmt: skip
