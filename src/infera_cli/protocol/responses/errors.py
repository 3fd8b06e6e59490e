"""What an engine says is wrong, in the shape of OpenAI's API (engines.md §1.10, §2.7)."""

from __future__ import annotations

from infera_cli.protocol import openai
from infera_cli.protocol.messages.errors import message_of

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


def engine_error(status: int, body: bytes) -> tuple[int, bytes]:
    """An engine's refusal as (status, body)."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return status, openai.error_body(message_of(body) or f"The engine answered {status}.", type=kind)
