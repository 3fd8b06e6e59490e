"""What engines answer to a chat request, as far as a translator reads it: whole, and in chunks.

Members that are null, absent or of another engine's making do no harm; `reasoning` and `reasoning_content` are two
names of one thing (R061).
"""

from __future__ import annotations

from typing import Any

import msgspec

BROKEN_OFF = frozenset({"abort", "cancelled", "error"})
"""Finish reasons by which an engine says that the answer is not whole (rulings 11)."""


class Details(msgspec.Struct, frozen=True, gc=False):
    """Of the prompt: how much was in the cache."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens, as OpenAI counts them: cached ones are part of the prompt."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None

    @property
    def prompt(self) -> int:
        """Tokens of the prompt, cached ones included."""
        return self.prompt_tokens or 0

    @property
    def completion(self) -> int:
        """Tokens of the answer."""
        return self.completion_tokens or 0

    @property
    def cached(self) -> int:
        """Tokens of the prompt that were in the cache."""
        details = self.prompt_tokens_details
        return min(details.cached_tokens or 0, self.prompt) if details is not None else 0


class Function(msgspec.Struct, frozen=True, gc=False):
    """A tool's name and its arguments, JSON as text; in a stream any part of them."""

    name: str | None = None
    arguments: str | None = None


class Call(msgspec.Struct, frozen=True, gc=False):
    """A tool call, or in a stream a piece of the one that `index` names."""

    function: Function | None = None
    id: str | None = None
    index: int = 0


class Said(msgspec.Struct, frozen=True, gc=False):
    """A message, or in a stream what is new of it."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Call] | None = None
    refusal: str | None = None


SILENCE = Said()


class ChunkChoice(msgspec.Struct, frozen=True, gc=False):
    """One choice of a chunk."""

    delta: Said = SILENCE
    finish_reason: str | None = None
    stop_reason: Any = None
    index: int = 0


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """One event of a stream."""

    choices: list[ChunkChoice] = []
    usage: Usage | None = None
    error: Any = None
    object: Any = None
    created: Any = None


class Choice(msgspec.Struct, frozen=True, gc=False):
    """One choice of a whole answer."""

    message: Said
    finish_reason: str | None = None
    stop_reason: Any = None
    index: int = 0


class Completion(msgspec.Struct, frozen=True, gc=False):
    """A whole answer."""

    choices: list[Choice]
    usage: Usage | None = None
    created: Any = None


NO_USAGE = Usage()
_chunk = msgspec.json.Decoder(Chunk).decode
_completion = msgspec.json.Decoder(Completion).decode


def read_chunk(data: bytes) -> Chunk | None:
    """The event, None where it is not one: such lines are passed over (infera-wire §7.3)."""
    try:
        return _chunk(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_completion(body: bytes) -> Completion:
    """The whole answer. Raises ValueError when it is none, or has no choice."""
    try:
        answer = _completion(body)
    except (msgspec.DecodeError, RecursionError) as wrong:
        raise ValueError(f"not a chat completion: {wrong}") from None
    if not answer.choices:
        raise ValueError("a chat completion without a choice")
    return answer
