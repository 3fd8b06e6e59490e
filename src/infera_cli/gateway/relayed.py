"""Which routes are relayed to a worker verbatim; all of them are POST (design.md §3).

The data plane takes these at *headers complete*; the control plane documents them and answers wrong methods.
"""

from __future__ import annotations

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
"""Path → one line for people. Anything else below AUDIO_PREFIX is relayed as well."""

AUDIO_PREFIX = "/v1/audio/"


def is_relayed(path: str) -> bool:
    """Whether a POST to `path` (without the query string) goes to a worker."""
    return path in RELAYED or (path.startswith(AUDIO_PREFIX) and len(path) > len(AUDIO_PREFIX))
