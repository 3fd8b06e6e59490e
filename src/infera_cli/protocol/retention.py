"""Telling an engine how long a prompt should stay cached: members added to the body, nothing else touched
(infera-wire §4.6; rulings 8).

Whatever a client supplied wins. The body is not written anew: members are put behind its first brace.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Hint = Literal["none", "short", "long"]

NAME = "infera_retention"
_PRIORITY = {"none": 0, "short": 50, "long": 100}
_DEAF = frozenset({"atom", "pypto"})
"""Engines that would not read it."""


class _Given(msgspec.Struct, gc=False):
    priority: msgspec.Raw = msgspec.Raw(b"")
    infera_retention: msgspec.Raw = msgspec.Raw(b"")
    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"")


_decode = msgspec.json.Decoder(_Given).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def with_hint(body: bytes | bytearray, engine: str, hint: Hint) -> bytes:
    """`body` as `engine` shall get it; the same where it takes no hints, has one, or is no object.

    An engine of unknown kind is taken for vLLM, which ignores what it does not know.
    """
    if engine in _DEAF:
        return bytes(body)
    try:
        given = _decode(body)
    except _UNREADABLE:
        return bytes(body)
    if engine == "sglang":
        return _for_sglang(bytes(body), given, hint)
    return _for_vllm(bytes(body), given, hint)


def _for_sglang(body: bytes, given: _Given, hint: Hint) -> bytes:
    added = [] if given.priority else [b'"priority":%d' % _PRIORITY[hint]]
    if not given.infera_retention:
        added.append(_member(hint))
    return _behind_brace(body, 0, added)


def _for_vllm(body: bytes, given: _Given, hint: Hint) -> bytes:
    if not given.kv_transfer_params:
        return _behind_brace(body, 0, [b'"kv_transfer_params":{%b}' % _member(hint)])
    own = bytes(given.kv_transfer_params)
    places = [found.end() for found in re.finditer(rb'"kv_transfer_params"\s*:\s*(?=%b)' % re.escape(own), body)]
    if not own.startswith(b"{") or f'"{NAME}"'.encode() in own or len(places) != 1:
        return body
    return _behind_brace(body, places[0], [_member(hint)])


def _member(hint: Hint) -> bytes:
    return f'"{NAME}":"{hint}"'.encode()


def _behind_brace(body: bytes, start: int, members: list[bytes]) -> bytes:
    """With `members` first in the object that begins at `start`, spaces before it aside."""
    if not members:
        return body
    at = body.index(b"{", start) + 1
    comma = b"" if body[at:].lstrip().startswith(b"}") else b","
    return body[:at] + b",".join(members) + comma + body[at:]
