"""Anthropic's Messages API as far as a verbatim relay must know it: the shape of errors."""

from __future__ import annotations

import msgspec

_BY_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    402: "billing_error",
    408: "timeout_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_type(status: int) -> str:
    """The API's error type for an HTTP status."""
    return _BY_STATUS.get(status, "api_error" if status >= 500 else "invalid_request_error")


def error_body(message: str, *, status: int) -> bytes:
    """The API's error body as JSON."""
    return msgspec.json.encode({"type": "error", "error": {"type": error_type(status), "message": message}})


def error_event(message: str, *, status: int) -> bytes:
    """An error inside a stream, as a server-sent event."""
    return b"event: error\ndata: " + error_body(message, status=status) + b"\n\n"
