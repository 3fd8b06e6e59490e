"""`x-inferact` in a request's body: read, checked, and cut out (replica-router §2.2, §2.7; rulings 8).

The object is cut as a range of bytes, so that everything else of the body reaches the engine byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from infera_cli.errors import RequestError

NAME = "x-inferact"
MEMBERS = ("node_affinity", "kv_prefix_hint", "priority")
DEFAULT_PRIORITY = 5
HIGHEST_PRIORITY = 10
_LONGEST = 256


class Extensions(NamedTuple):
    """What a client asks of the router: a node, a name for its prefix, 0 (low) to 10 (high)."""

    node_affinity: str | None = None
    kv_prefix_hint: str | None = None
    priority: int = DEFAULT_PRIORITY


NONE = Extensions()


def read(value: object) -> Extensions:
    """The extensions in the member's value. Raises RequestError that names the member at fault."""
    if not isinstance(value, dict):
        raise _refuse("", "must be an object")
    for key in value:
        if key not in MEMBERS:
            shown = key if key.isprintable() and len(key) <= 64 else "…"
            raise _refuse(shown, f"is unknown; there are {', '.join(MEMBERS)}")
    priority = value.get("priority", DEFAULT_PRIORITY)
    if type(priority) is not int or not 0 <= priority <= HIGHEST_PRIORITY:
        raise _refuse("priority", f"must be a whole number from 0 to {HIGHEST_PRIORITY}")
    return Extensions(_text(value, "node_affinity"), _text(value, "kv_prefix_hint"), priority)


def _text(value: dict[str, Any], key: str) -> str | None:
    text = value.get(key)
    if text is None:
        return None
    if not isinstance(text, str) or not 0 < len(text) <= _LONGEST:
        raise _refuse(key, f"must be a text of 1 to {_LONGEST} characters")
    return text


def _refuse(member: str, reason: str) -> RequestError:
    where = f"{NAME}.{member}" if member else NAME
    return RequestError(f"{where} {reason}.", param=where)


# ── cutting ──────────────────────────────────────────────────────────────────────────────────────────
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]', re.DOTALL)


class _Member(NamedTuple):
    """One member of the outermost object: its key, where it begins, and where the comma or brace after it is."""

    key: bytes
    start: int
    end: int


def without(body: bytes | bytearray) -> bytes:
    """`body`, a JSON object, less its members called `x-inferact`; all else stays byte for byte."""
    members = list(_members(body))
    kept = [member for member in members if not _is_ours(member.key)]
    if len(kept) == len(members):
        return bytes(body)
    raw = bytes(body)
    head, tail = raw[: members[0].start], raw[members[-1].end :]
    return head + b",".join([raw[member.start : member.end] for member in kept]) + tail


def _is_ours(key: bytes) -> bool:
    if b"\\" not in key:
        return key == b'"x-inferact"'
    return bool(msgspec.json.decode(key) == NAME)


def _members(body: bytes | bytearray) -> Iterator[_Member]:
    depth, start, key = 0, 0, b""
    for found in _TOKEN.finditer(body):
        token = found[0]
        if depth == 1 and token in b",}":
            if key:
                yield _Member(key, start, found.start())
            start, key = found.end(), b""
        if token in b"{[":
            depth += 1
            if depth == 1:
                start = found.end()
        elif token in b"}]":
            depth -= 1
            if not depth:
                return
        elif depth == 1 and not key and token.startswith(b'"'):
            key = bytes(token)
