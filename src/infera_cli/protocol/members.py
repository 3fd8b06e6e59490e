"""Reading members of a body that anybody may have written: the right type, or a sentence that names the member."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from infera_cli.errors import RequestError

Object = dict[str, Any]
_NAMES = {
    str: "a string", int: "an integer", float: "a number", bool: "true or false", list: "a list", dict: "an object",
}  # fmt: skip


def bad(where: str, what: str) -> RequestError:
    """The refusal of the member `where`, a dotted path such as `messages.0.content`."""
    return RequestError(f"{where}: {what}", param=where)


def read_object(body: bytes | bytearray) -> Object:
    """The body as an object. Raises RequestError."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        half = _half_a_character(body)
        if half is not None:
            raise bad(half, "holds half of a character (a lone surrogate); cut text between characters.") from None
        raise RequestError(f"The body is not valid JSON: {str(wrong)[:120]}.") from None
    except RecursionError:
        where = _deepest_member(body)
        if where is None:
            raise RequestError("The body is nested too deeply.") from None
        raise bad(where, "is nested too deeply.") from None
    if not isinstance(value, dict):
        raise RequestError("The body must be a JSON object.")
    return value


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}:]')


def _deepest_member(body: bytes | bytearray) -> str | None:
    """The member of the body's object in which brackets are nested the deepest; None where that is in none."""
    depth = deepest = 0
    member: bytes | None = None
    where: bytes | None = None
    before = b""
    for found in _TOKEN.finditer(body):
        token = bytes(found[0])
        if token in {b"[", b"{"}:
            depth += 1
            if depth > deepest:
                deepest, where = depth, member
        elif token in {b"]", b"}"}:
            depth -= 1
        elif token == b":" and depth == 1:
            member = before[1:-1]
        before = token
    return None if where is None else where.decode("utf-8", "replace")[:100]


def _half_a_character(body: bytes | bytearray) -> str | None:
    """The member with a lone surrogate, which agents make when they cut text; None where something else is wrong."""
    try:
        found: list[tuple[str, Any]] = [("", json.loads(body))]
    except (ValueError, RecursionError):
        return None
    while found:
        where, value = found.pop()
        if isinstance(value, str) and not _is_text(value):
            return where or "The body"
        if isinstance(value, dict):
            if not all(map(_is_text, value)):
                return where or "The body"
            found += [(f"{where}.{name}".lstrip("."), inside) for name, inside in reversed(value.items())]
        elif isinstance(value, list):
            found += [(f"{where}.{number}".lstrip("."), value[number]) for number in reversed(range(len(value)))]
    return None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_type(value: Any, kind: type, where: str) -> Any:
    """`value` if it is a `kind` (true is no integer, an integer is a number). Raises RequestError."""
    if kind is float and type(value) is int:
        return value
    if type(value) is not kind:
        raise bad(where, f"must be {_NAMES[kind]}.")
    return value


def optional(source: Object, name: str, kind: type, where: str = "") -> Any:
    """The member `name`, None where it is absent or null. Raises RequestError."""
    value = source.get(name)
    return None if value is None else as_type(value, kind, where + name)


def required_text(source: Object, name: str, where: str = "") -> str:
    """The member `name`, a string that is not blank. Raises RequestError."""
    value = source.get(name)
    if value is None:
        raise bad(where + name, "is required.")
    text: str = as_type(value, str, where + name)
    if not text.strip():
        raise bad(where + name, "must not be blank.")
    return text


def encode(value: Object) -> bytes:
    """`value` as JSON. Raises RequestError."""
    try:
        return msgspec.json.encode(value)
    except (RecursionError, UnicodeEncodeError):
        raise RequestError("The body is nested too deeply, or holds half of a character.") from None


class Dropped:
    """Kinds of block and tool that engines are not told of, in order of appearance, each once."""

    def __init__(self) -> None:
        self.kinds: dict[str, None] = {}

    def note(self, kind: object) -> None:
        """`kind` was left out."""
        self.kinds[str(kind)[:64]] = None
