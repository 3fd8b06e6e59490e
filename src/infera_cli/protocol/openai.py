"""OpenAI's API as far as a verbatim relay must know it: errors, and the few members that routing reads."""

from __future__ import annotations

import re

import msgspec

_NEEDS_MORE_THAN_BYTES = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


def error_object(message: str, *, type: str, param: str | None = None, code: str | None = None) -> dict[str, object]:  # noqa: A002 - the API's own member name
    """The `error` member of OpenAI's error body."""
    return {"message": message, "type": type, "param": param, "code": code}


def error_body(message: str, *, type: str, param: str | None = None, code: str | None = None) -> bytes:  # noqa: A002
    """OpenAI's error body as JSON."""
    return msgspec.json.encode({"error": error_object(message, type=type, param=param, code=code)})


def error_event(message: str, *, type: str) -> bytes:  # noqa: A002
    """An error inside a stream, as a server-sent event."""
    return b"data: " + error_body(message, type=type) + b"\n\n"


def responses_error_event(message: str, *, code: str) -> bytes:
    """An error inside a stream of the Responses API."""
    told = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": 0}
    return b"event: error\ndata: " + msgspec.json.encode(told) + b"\n\n"



class _Members(msgspec.Struct):
    model: object = None
    session_id: object = None
    prompt_cache_key: object = None
    metadata: object = None


class Peek(msgspec.Struct, frozen=True, gc=False):
    """What routing reads of a body: the model, and a session key as (kind, value); None where absent."""

    model: str | None = None
    session: tuple[str, str] | None = None


NOTHING = Peek()
_decode = msgspec.json.Decoder(_Members).decode


def peek(body: bytes | bytearray) -> Peek:
    """Read the routing members of a JSON body.

    A body that is not JSON, not an object, or absurdly nested tells nothing and is no error: the engine judges it
    (replica-router §1.10; R035, B34).
    """
    try:
        members = _decode(body)
    except _NEEDS_MORE_THAN_BYTES:
        return NOTHING
    return peek_of(members.model, members.session_id, members.prompt_cache_key, members.metadata)


_LONGEST_MODEL = 256
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
