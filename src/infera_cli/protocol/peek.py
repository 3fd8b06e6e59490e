"""What routing reads of a request's body: the model and a session key."""

from __future__ import annotations

import re
from typing import Final

from infera_cli.protocol.peek_members import UNREADABLE, decode


class Peek:
    """The model, and a session key as (kind, value); None where absent. Never changed once made."""

    __slots__ = ("model", "session")

    def __init__(self, model: str | None = None, session: tuple[str, str] | None = None) -> None:
        self.model = model
        self.session = session


NOTHING: Final = Peek()


def peek(body: bytes | bytearray) -> Peek:
    """Read the routing members of a JSON body.

    A body that is not JSON, not an object, or absurdly nested tells nothing and is no error: the engine judges it
    (replica-router §1.10; R035, B34).
    """
    try:
        members = decode(_less_long_text(body) if len(body) > _LONG else body)
    except UNREADABLE:
        return NOTHING
    return peek_of(members.model, members.session_id, members.prompt_cache_key, members.metadata)


_LONG: Final = 1024
_BLANK: Final = 0x20
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_CUTS: Final = 8
_QUOTES: Final = 4


def _less_long_text(body: bytes | bytearray) -> bytes | bytearray:
    """`body` without what long strings under `"content"` hold, which is most of it and nothing that is read here.

    Outside of strings a quote only ever opens one, and inside it would be escaped: so these bytes can be nothing but
    that member, and its text ends at the next quote with an even number of backslashes before it. Skipping by `find`
    takes a fraction of the time that reading every character takes.
    """
    at = 0
    for _ in range(_CUTS):
        at = body.find(b'"content":', at) + 10
        if at < 10 or at + 1 >= len(body):
            break
        at += body[at] == _BLANK
        if body[at] == _QUOTE:
            end = _end_of_text(body, at + 1)
            if end - at > _LONG:
                body = body[: at + 1] + body[end:]
                if len(body) <= _LONG:
                    break
    return body


def _end_of_text(body: bytes | bytearray, start: int) -> int:
    """Where the quote is that ends the string from `start`; −1 where that is not soon found."""
    at = start
    for _ in range(_QUOTES):
        end = body.find(b'"', at)
        if end < 0:
            break
        before = end
        while body[before - 1] == _BACKSLASH:  # the quote before `start` ends this at the latest
            before -= 1
        if (end - before) % 2 == 0:
            return end
        at = end + 1
    return -1


_LONGEST_MODEL: Final = 256
"""Characters of a model's name that are looked at: it is kept with the request's record and written to logs."""


def peek_of(model: object, session_id: object, cache_key: object, metadata: object) -> Peek:
    """What those four members of a body tell, whatever they hold."""
    named = None
    if session_id is not None or cache_key is not None or metadata is not None:
        named = _session(session_id, cache_key, metadata)
    if type(model) is not str:
        return Peek(None, named)
    return Peek(model if len(model) <= _LONGEST_MODEL else model[:_LONGEST_MODEL] + "…", named)


def _session(session_id: object, cache_key: object, metadata: object) -> tuple[str, str] | None:
    if isinstance(session_id, str) and session_id:
        return "session_id", session_id
    if isinstance(cache_key, str) and cache_key:
        return "prompt_cache_key", cache_key
    if isinstance(metadata, dict):
        user = metadata.get("user_id")
        if isinstance(user, str) and user:
            return "user_id", user
    return None


_FORM_MODEL = re.compile(rb'name="model"\r\n(?:[^\r\n]+\r\n)*\r\n([^\r\n]{1,256})\r\n')


def peek_form(body: bytes | bytearray) -> Peek:
    """The model of a multipart form, as the audio routes send it."""
    found = _FORM_MODEL.search(body)
    return Peek(found[1].decode("utf-8", "replace")) if found else NOTHING
