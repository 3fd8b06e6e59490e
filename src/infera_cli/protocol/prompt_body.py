"""What of a generating request decides where it goes: its prompt, its images, what it asks of the cache.

(Source: infera-wire §4.6, §4.7; engines §6.1.) The engine is the judge of a body; what cannot be read here is
simply not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
from xxhash import xxh3_64_intdigest

from infera_cli.blocks import reference_hash

Retention = Literal["none", "short", "long"]

_STRENGTH: dict[Retention | None, int] = {None: 0, "none": 1, "short": 2, "long": 3}
_RETENTION: dict[str, Retention] = {
    **dict.fromkeys(("24h", "1h", "long"), "long"),
    **dict.fromkeys(("5m", "short"), "short"),
    **dict.fromkeys(("none", "off", "disabled"), "none"),
}
_64_BITS = (1 << 64) - 1
_CONTROL = b"cache_control"
_LIST, _NULL = ord("["), ord("n")
_LONG_TTL = frozenset({"1h", "1hr", "60m", "3600s", "long"})
_MEDIA = frozenset({"image", "image_url", "input_audio", "document", "file", "video", "audio"})
_THINKING = frozenset({"thinking", "redacted_thinking"})


class Members(msgspec.Struct, gc=False):
    """The members of a body that decide its prompt, as they came."""

    model: object = None
    messages: msgspec.Raw = msgspec.Raw(b"")
    prompt: msgspec.Raw = msgspec.Raw(b"")
    system: msgspec.Raw = msgspec.Raw(b"")
    tools: msgspec.Raw = msgspec.Raw(b"")
    images: object = None
    audio: object = None
    cache_salt: object = None
    chat_template: object = None
    chat_template_kwargs: object = None
    continue_final_message: object = None
    documents: object = None
    reasoning_effort: object = None
    prompt_cache_retention: object = None
    prompt_cache_key: object = None


class _Message(msgspec.Struct, gc=False):
    role: str = ""
    content: msgspec.Raw = msgspec.Raw(b"")


_decode = msgspec.json.Decoder(Members).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_messages = msgspec.json.Decoder(list[_Message]).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class PromptBody(msgspec.Struct, kw_only=True, gc=False):
    """A generating request. `messages` are (role, JSON) of a chat, `prompt` that of a completion; JSON is as
    the client wrote it. `media` are the keys of its images and sounds, None where it is text alone."""

    model: str | None = None
    messages: Sequence[tuple[str, bytes]] = ()
    system: bytes = b""
    prompt: object = None
    tools: bytes = b""
    rest: dict[str, Any] = {}
    salt: str | None = None
    media: tuple[int, ...] | None = None
    retention: Retention | None = None


def members_of(body: bytes | bytearray) -> Members | None:
    """The members that matter; None where the body is no object."""
    try:
        return _decode(body)
    except _UNREADABLE:
        return None


def digest(found: Members) -> int | None:
    """Stands for everything that the prompt's tokens and hints depend on; None where that is of an unusual form."""
    plain = (found.model, found.cache_salt, found.prompt_cache_retention, found.prompt_cache_key)
    if found.images is not None or found.audio is not None or _rest(found):
        return None
    if not all(each is None or isinstance(each, str) for each in plain):
        return None
    key = hash(plain) & _64_BITS  # good enough for what lives as long as this process
    for raw in (found.messages, found.prompt, found.system, found.tools):
        key = xxh3_64_intdigest(raw, seed=key)
    return key


def read(body: bytes | bytearray) -> PromptBody | None:
    """The whole of it; None where the body is no object, or no conversation can be seen in it."""
    found = members_of(body)
    return read_members(found) if found is not None else None


def read_members(found: Members) -> PromptBody | None:
    """As `read`, of members that were looked at before."""
    try:
        messages = _messages(found.messages)
        prompt = msgspec.json.decode(found.prompt) if found.prompt else None
        lists = [*_lists(messages), *_system(found.system)]
        tools = msgspec.json.decode(found.tools) if found.tools and _CONTROL in bytes(found.tools) else None
    except _UNREADABLE:
        return None
    return PromptBody(
        model=found.model if isinstance(found.model, str) else None,
        messages=[(role, raw) for role, raw, _ in messages],
        system=_unless_null(found.system),
        prompt=prompt,
        tools=_unless_null(found.tools),
        rest=_rest(found),
        salt=found.cache_salt if isinstance(found.cache_salt, str) and found.cache_salt else None,
        media=_media(found, lists),
        retention=_retention(found, [*lists, tools] if isinstance(tools, list) else lists),
    )


def _messages(raw: msgspec.Raw) -> list[tuple[str, bytes, msgspec.Raw]]:
    if _first(raw) != _LIST:
        return []
    whole, parts = _decode_list(raw), _decode_messages(raw)
    return [(part.role, bytes(each), part.content) for each, part in zip(whole, parts, strict=True)]


def _first(raw: msgspec.Raw) -> int:
    """The first byte, 0 where there is none."""
    return memoryview(raw)[0] if raw else 0


def _unless_null(raw: msgspec.Raw) -> bytes:
    return b"" if _first(raw) in (0, _NULL) else bytes(raw)


def _lists(messages: Sequence[tuple[str, bytes, msgspec.Raw]]) -> Iterator[list[Any]]:
    """The content of those messages whose content is a list."""
    for _, _, content in messages:
        if _first(content) == _LIST:
            yield msgspec.json.decode(content)


def _system(raw: msgspec.Raw) -> Iterator[list[Any]]:
    if _first(raw) == _LIST:
        yield msgspec.json.decode(raw)


def _rest(found: Members) -> dict[str, Any]:
    named = ("chat_template", "chat_template_kwargs", "continue_final_message", "documents", "reasoning_effort")
    return {name: value for name in named if (value := getattr(found, name)) is not None}


# ── images (infera-wire §4.7) ────────────────────────────────────────────────────────────────────────
def _media(found: Members, lists: Sequence[list[Any]]) -> tuple[int, ...] | None:
    blocks = [part for parts in lists for part in parts if isinstance(part, dict) and part.get("type") in _MEDIA]
    images = found.images if isinstance(found.images, list) else []
    if not blocks and not images and not found.audio:
        return None
    references = [_reference(block) for block in blocks] + [_reference(item) for item in images]
    return tuple(reference_hash(text.strip()) for text in references if text)


def _reference(block: Any) -> str | None:
    if isinstance(block, str):
        return block
    if not isinstance(block, dict):
        return None
    for key in ("image_url", "input_audio", "source"):
        inner = block.get(key)
        if isinstance(inner, str):
            return inner
        if isinstance(inner, dict):
            block = inner
            break
    for key in ("url", "data"):
        value = block.get(key)
        if isinstance(value, str):
            return value
    return None


# ── retention (infera-wire §4.6) ─────────────────────────────────────────────────────────────────────
def _retention(found: Members, lists: Sequence[list[Any]]) -> Retention | None:
    hints: list[Retention | None] = [None]
    if isinstance(found.prompt_cache_retention, str):
        hints.append(_RETENTION.get(found.prompt_cache_retention.strip().lower()))
    if isinstance(found.prompt_cache_key, str) and found.prompt_cache_key:
        hints.append("short")
    hints += [_hint(part) for parts in lists for part in parts if isinstance(part, dict) and "cache_control" in part]
    return max(hints, key=_STRENGTH.__getitem__)


def _hint(part: dict[str, Any]) -> Retention | None:
    control = part["cache_control"]
    if not isinstance(control, dict) or control.get("type") != "ephemeral":
        return None
    if part.get("type") in _THINKING:
        return "none"
    ttl = control.get("ttl")
    return "long" if isinstance(ttl, str) and ttl.strip().lower() in _LONG_TTL else "short"
