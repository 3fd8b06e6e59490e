"""OpenAI's shape of errors."""

from __future__ import annotations

import msgspec


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
