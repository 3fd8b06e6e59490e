"""An answer as it arrives: bytes and the instants they came, into first token, gaps, usage, ending.

A *token event* has non-empty content, reasoning, a tool-call fragment, or completion text. A role chunk,
an empty string, a finish-only or usage-only chunk, a comment, a ping and `[DONE]` are none
(bench-and-cli §0.2). Events of one read share its instant.
"""

from __future__ import annotations

from array import array
from typing import Any

import msgspec

from infera_cli.workload.answer_events import Anthropic, OpenAI, Usage, decode_anthropic, decode_openai
from infera_cli.workload.requests import Dialect
from infera_cli.workload.sse import EventDecoder

ABORTED = frozenset({"abort", "aborted", "cancelled", "error"})
_FOUR_BYTES = 0xFFFFFFFF


class Answer:
    """One answer. Instants are whatever unit the caller uses, in seconds; `None` until reached."""

    def __init__(self, dialect: Dialect, *, stream: bool = True, keep_text: bool = False) -> None:
        self.first: float | None = None
        self.first_content: float | None = None
        self.last: float | None = None
        self.events = 0
        self.gaps = array("I")
        self.weights = array("H")
        self.input: int | None = None
        self.output: int | None = None
        self.cached: int | None = None
        self.finish = ""
        self.error = ""
        self.done = False
        self.malformed = False
        self._texts: list[str] = []
        self._keep = keep_text
        self._stream = stream
        self._whole: list[bytes] = []
        self._decoder = EventDecoder()
        self._read = self._read_anthropic if dialect == "messages" else self._read_openai
        self._weighed = True

    def feed(self, at: float, data: bytes) -> None:
        """Body bytes that arrived at `at`."""
        if not self._stream:
            self._whole.append(data)
            return
        for name, event in self._decoder.feed(data):
            self._event(at, name, event)

    def close(self, at: float) -> None:
        """The body is over; `at` is when."""
        if self._stream:
            for name, event in self._decoder.flush():
                self._event(at, name, event)
        else:
            self._unary(at, b"".join(self._whole))
            self._whole = []

    @property
    def text(self) -> str:
        """The visible answer, when it was kept."""
        return "".join(self._texts)

    def verdict(self) -> str:
        """How the body ended: ok, error_event, engine_abort, malformed, truncated or empty (R161, R163)."""
        if self.error:
            return "error_event"
        if self.malformed:
            return "malformed"
        if self.finish in ABORTED:
            return "engine_abort"
        if not self.done and not self.finish:
            return "truncated"
        return "ok" if self.events or not self._stream else "empty"

    def known_weights(self) -> bytes:
        """Tokens of every token event, if the server told them all."""
        return self.weights.tobytes() if self._weighed and len(self.weights) == self.events else b""

    # ── events ───────────────────────────────────────────────────────────────────────────────────────
    def _event(self, at: float, name: bytes, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
        elif name == b"error":
            self.error = data[:300].decode("utf-8", "replace")
        else:
            try:
                self._read(at, data)
            except msgspec.DecodeError:
                self.malformed = True

    def _token(self, at: float, *, content: bool, weight: int | None = None) -> None:
        if self.last is None:
            self.first = at
        else:
            self.gaps.append(min(round((at - self.last) * 1e6), _FOUR_BYTES))
        if content and self.first_content is None:
            self.first_content = at
        self.last = at
        self.events += 1
        if weight is None:
            self._weighed = False
        else:
            self.weights.append(min(max(weight, 0), 0xFFFF))

    def _read_openai(self, at: float, data: bytes) -> None:
        chunk = decode_openai(data)
        if chunk.error:
            self.error = _words(chunk.error)
            return
        before = self.output or 0
        if chunk.usage is not None:
            self._usage(chunk.usage)
        visible = hidden = False
        for choice in chunk.choices or ():
            if choice.finish_reason:
                self.finish = choice.finish_reason
            delta = choice.delta
            if delta is None:
                visible |= self._say(choice.text)
                continue
            visible |= bool(delta.tool_calls) | self._say(delta.content)
            hidden |= bool(delta.reasoning_content or delta.reasoning)
        if visible or hidden:
            weight = (self.output or 0) - before if chunk.usage is not None and chunk.choices else None
            self._token(at, content=visible, weight=weight)

    def _read_anthropic(self, at: float, data: bytes) -> None:
        event = decode_anthropic(data)
        if event.error or event.type == "error":
            self.error = _words(event.error)
        elif event.type == "message_start" and event.message is not None and event.message.usage is not None:
            self._usage(event.message.usage)
            self.output = None          # message_start's output_tokens is a placeholder
        elif event.type == "content_block_delta" and event.delta is not None:
            delta = event.delta
            visible = self._say(delta.text) | bool(delta.partial_json)
            if visible or delta.thinking:
                self._token(at, content=visible)
        elif event.type == "message_delta":
            if event.usage is not None:
                self._usage(event.usage)
            if event.delta is not None and event.delta.stop_reason:
                self.finish = event.delta.stop_reason
        elif event.type == "message_stop":
            self.done = True

    def _say(self, text: Any) -> bool:
        if not text:
            return False
        if self._keep and isinstance(text, str):
            self._texts.append(text)
        return True

    def _usage(self, usage: Usage) -> None:
        read = usage.cache_read_input_tokens or 0
        created = usage.cache_creation_input_tokens or 0
        if usage.prompt_tokens is not None:
            self.input = usage.prompt_tokens
        elif usage.input_tokens is not None:
            self.input = usage.input_tokens + read + created
        output = usage.completion_tokens if usage.completion_tokens is not None else usage.output_tokens
        if output is not None:
            self.output = output
        if usage.prompt_tokens_details is not None and usage.prompt_tokens_details.cached_tokens is not None:
            self.cached = usage.prompt_tokens_details.cached_tokens
        elif usage.cache_read_input_tokens is not None:
            self.cached = usage.cache_read_input_tokens

    # ── without streaming ────────────────────────────────────────────────────────────────────────────
    def _unary(self, at: float, data: bytes) -> None:
        try:
            if self._read == self._read_anthropic:
                self._unary_anthropic(decode_anthropic(data))
            else:
                self._unary_openai(decode_openai(data))
        except msgspec.DecodeError:
            self.malformed = True
        self.last = at

    def _unary_openai(self, whole: OpenAI) -> None:
        self.error = _words(whole.error) if whole.error else ""
        if whole.usage is not None:
            self._usage(whole.usage)
        for choice in whole.choices or ():
            self.finish = choice.finish_reason or self.finish
            self._say(choice.message.content if choice.message is not None else choice.text)
        self.done = bool(whole.choices)

    def _unary_anthropic(self, whole: Anthropic) -> None:
        self.error = _words(whole.error) if whole.error else ""
        if whole.usage is not None:
            self._usage(whole.usage)
        for block in whole.content or ():
            self._say(block.text)
        self.finish = whole.stop_reason or ""
        self.done = whole.content is not None


def _words(error: Any) -> str:
    found = error.get("message", error) if isinstance(error, dict) else error
    return str(found or "error")[:300]
