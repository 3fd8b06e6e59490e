"""Which routes are relayed to a worker verbatim; all of them are POST (design.md §3).

The data plane takes these at *headers complete*; the control plane documents them and answers wrong methods.
"""

from __future__ import annotations

import re

import httptools

RELAYED: dict[str, str] = {
    "/v1/chat/completions": "Chat completion, unary or streamed",
    "/v1/completions": "Text completion, unary or streamed",
    "/v1/responses": "OpenAI Responses API",
    "/v1/messages": "Anthropic Messages API, unary or streamed",
    "/v1/messages/count_tokens": "Token count of an Anthropic Messages request",
    "/v1/embeddings": "Embeddings",
    "/v1/rerank": "Rerank documents against a query",
    "/v1/score": "Score pairs of texts",
    "/v1/classify": "Classify texts",
    "/v1/audio/transcriptions": "Transcribe audio (multipart form)",
    "/v1/audio/translations": "Translate audio (multipart form)",
    "/v1/audio/speech": "Speak a text",
    "/tokenize": "Token ids of a prompt",
    "/detokenize": "Text of token ids",
}
"""Path → one line for people. Plain names below AUDIO_PREFIX are relayed as well."""

AUDIO_PREFIX = "/v1/audio/"
_PLAIN = re.compile(re.escape(AUDIO_PREFIX) + r"[A-Za-z0-9_-]{1,64}(?:/[A-Za-z0-9_-]{1,64}){0,3}")
"""Neither dots nor percent signs: they could lead a worker, or a proxy before it, to a route that is not relayed."""


def is_relayed(path: str) -> bool:
    """Whether a POST to `path` (without the query string) goes to a worker."""
    return path in RELAYED or _PLAIN.fullmatch(path) is not None


def origin_form(url: bytes) -> bytes:
    """The path and query of a target that may be in absolute form (RFC 9112 §3.2.2)."""
    parsed = httptools.parse_url(url)
    query = b"?" + parsed.query if parsed.query else b""
    return (parsed.path or b"/") + query
