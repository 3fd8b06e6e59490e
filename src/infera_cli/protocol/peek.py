"""What routing reads of a request's body: the model and a session key."""

from __future__ import annotations

import re
from typing import Final

from infera_cli.protocol.long_texts import LONG, long_texts
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
        members = decode(_less_long_texts(body) if len(body) > LONG else body)
    except UNREADABLE:
        return NOTHING
    return peek_of(members.model, members.session_id, members.prompt_cache_key, members.metadata)


_CUTS: Final = 8


def _less_long_texts(body: bytes | bytearray) -> bytes | bytearray:
    """`body` with nothing in its first long texts, none of which is read here; as it is where they are little of it."""
    ends = long_texts(body, _CUTS)
    kept: list[bytes | bytearray] = []
    size = done = 0
    for place in range(0, len(ends), 2):
        start = ends[place]
        size += start - done
        if 2 * size > len(body):
            return body
        kept.append(body[done:start])
        done = ends[place + 1]
    if 2 * (size + len(body) - done) > len(body):
        return body
    kept.append(body[done:])
    return b"".join(kept)


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
