"""An answer as it arrives: bytes and the instants they came, into first token, gaps, usage, ending.

A *token event* has non-empty content, reasoning, a tool-call fragment, or completion text. A role chunk,
an empty string, a finish-only or usage-only chunk, a comment, a ping and `[DONE]` are none
(bench-and-cli §0.2). A refusal and a `function_call` of the old kind, of which nothing is said there, are token events,
too: the one is an answer with text, the other a tool call by its former name. Events of one read share its instant.

Usage is what the server says, and some of it cannot be: numbers below 0, no tokens for an answer with text, more cached
than sent. That is passed over, as if it had not been said, and `odd_usage` says why.
"""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import Any

import msgspec

from infera_cli.workload.answer_events import Anthropic, OpenAI, Usage, decode_anthropic, decode_openai, decode_other
from infera_cli.workload.requests import Dialect
from infera_cli.workload.sse import EventDecoder
from infera_cli.workload.text import Count

ABORTED = frozenset({"abort", "aborted", "cancelled", "error"})
MOST = 1_000_000_000        # tokens; no prompt and no answer has more, and what is far above fits no record
SHOWN = 60                  # characters of a body that cannot be read

NO_NUMBER = "below 0 or above a billion tokens"
NO_OUTPUT = "no output tokens for an answer with text"
MORE_CACHED = "more cached than input tokens"

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
        self._input: int | None = None
        self._output: int | None = None
        self._cached: int | None = None
        self._odd = ""
        self.finish = ""
        self.error = ""
        self.done = False
        self.malformed = False
        self._unread = ""
        self._spoken = False        # a whole answer has text or a tool call
        self._texts: list[str] = []
        self._ends: list[int] = []      # how many texts there were after each token event
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
        if not self._stream:
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

    def reason(self, outcome: str) -> str:
        """What there is to say of a body that failed as `outcome`; nothing when that is no matter of the body."""
        if outcome == "malformed":
            return self._unread
        if outcome == "truncated":
            return self._unread or "the stream ended without a finish reason or [DONE]"
        return "no text, no reasoning and no tool call in it" if outcome == "empty" else ""

    # ── usage ────────────────────────────────────────────────────────────────────────────────────────
    @property
    def input(self) -> int | None:
        """Tokens of the prompt, as far as the server says."""
        return self._input

    @property
    def output(self) -> int | None:
        """Tokens of the answer, as far as the server says what can be."""
        return None if self._output is not None and self._output < self._least() else self._output

    @property
    def cached(self) -> int | None:
        """Tokens of the prompt that were cached, as far as the server says what can be."""
        return None if self._overcached() else self._cached

    def odd_usage(self) -> str:
        """Why usage, or some of it, was passed over; empty when all of it can be."""
        if self._odd:
            return self._odd
        if self._output is not None and self._output < self._least():
            return NO_OUTPUT
        return MORE_CACHED if self._overcached() else ""

    def _least(self) -> int:
        """An answer that says something has a token; who cuts one finer may have more chunks than tokens."""
        return int(bool(self.events) or self._spoken)

    def _overcached(self) -> bool:
        return self._cached is not None and self._input is not None and self._cached > self._input

    def known_weights(self) -> bytes:
        """Tokens of every token event, if the server told them all."""
        known = self._weighed and len(self.weights) == self.events and self.output is not None
        return self.weights.tobytes() if known else b""

    def counted_weights(self, count: Count, tokens: int) -> bytes:
        """Tokens of every token event as `count` has them, where the text was kept and they come to `tokens` in all."""
        if tokens == self.events:
            return b""      # a token each: nothing to find out
        pieces = ["".join(self._texts[begin:end]) for begin, end in pairwise([0, *self._ends])]
        found = array("H", [min(count(piece), 0xFFFF) for piece in pieces])
        return found.tobytes() if all(pieces) and sum(found) == tokens else b""

    # ── events ───────────────────────────────────────────────────────────────────────────────────────
    def _event(self, at: float, name: bytes, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
        elif name == b"error":
            self.error = data[:300].decode("utf-8", "replace") or "error"
        else:
            try:
                self._read(at, data)
            except msgspec.DecodeError as error:
                self._misread(error, data)

    def _misread(self, error: msgspec.DecodeError, data: bytes) -> None:
        self.malformed = True
        if not self._unread:
            where = isinstance(error, msgspec.ValidationError)      # it names the member: nothing need be shown
            self._unread = str(error) if where else f"no JSON: {_shown(data)}"

    def _token(self, at: float, *, content: bool, weight: int | None = None) -> None:
        if self.last is None:
            self.first = at
        else:
            self.gaps.append(min(round((at - self.last) * 1e6), _FOUR_BYTES))
        if content and self.first_content is None:
            self.first_content = at
        self.last = at
        self.events += 1
        if self._keep:
            self._ends.append(len(self._texts))
        if weight is None:
            self._weighed = False
        else:
            self.weights.append(min(max(weight, 0), 0xFFFF))

    def _read_openai(self, at: float, data: bytes) -> None:
        chunk = decode_openai(data)
        if chunk.error:
            self.error = _words(chunk.error)
            return
        before = self._output or 0
        if chunk.usage is not None:
            self._usage(chunk.usage)
        if not chunk.choices:
            if chunk.usage is None:
                self._other(data)
            return
        visible = hidden = False
        for choice in chunk.choices:
            if choice.finish_reason:
                self.finish = choice.finish_reason
            delta = choice.delta
            if delta is None:
                visible |= self._say(choice.text)
                continue
            visible |= bool(delta.tool_calls) | self._say(delta.content)
            hidden |= bool(delta.reasoning_content or delta.reasoning)
        if not (visible or hidden):
            visible = self._rarely(chunk)
        if visible or hidden:
            weight = (self._output or 0) - before if chunk.usage is not None else None
            self._token(at, content=visible, weight=weight)

    def _rarely(self, chunk: OpenAI) -> bool:
        """Whether a chunk without content, reasoning and tool calls has what else an answer may consist of."""
        found = False
        for choice in chunk.choices or ():
            if choice.delta is not None:
                found |= self._say(choice.delta.refusal) | bool(choice.delta.function_call)
        return found

    def _other(self, data: bytes) -> None:
        error = decode_other(data).error
        if error:
            self.error = _words(error)

    def _read_anthropic(self, at: float, data: bytes) -> None:
        event = decode_anthropic(data)
        if event.error or event.type == "error":
            self.error = _words(event.error)
        elif event.type == "message_start" and event.message is not None and event.message.usage is not None:
            self._usage(event.message.usage)
            self._output = None         # message_start's output_tokens is a placeholder
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
            self._input = self._number(usage.prompt_tokens, self._input)
        elif usage.input_tokens is not None:
            self._input = self._number(usage.input_tokens + read + created, self._input)
        output = usage.completion_tokens if usage.completion_tokens is not None else usage.output_tokens
        if output is not None:
            self._output = self._number(output, self._output)
        if usage.prompt_tokens_details is not None and usage.prompt_tokens_details.cached_tokens is not None:
            self._cached = self._number(usage.prompt_tokens_details.cached_tokens, self._cached)
        elif usage.cache_read_input_tokens is not None:
            self._cached = self._number(usage.cache_read_input_tokens, self._cached)

    def _number(self, said: int, before: int | None) -> int | None:
        if 0 <= said <= MOST:
            return said
        self._odd = NO_NUMBER
        return before

    # ── without streaming ────────────────────────────────────────────────────────────────────────────
    def _unary(self, at: float, data: bytes) -> None:
        try:
            if self._read == self._read_anthropic:
                self._unary_anthropic(decode_anthropic(data))
            else:
                self._unary_openai(decode_openai(data), data)
        except msgspec.DecodeError as error:
            self._misread(error, data)
        if not self.done:
            self._unread = self._unread or f"no answer in it: {_shown(data)}"
        self.last = at

    def _unary_openai(self, whole: OpenAI, data: bytes) -> None:
        self.error = _words(whole.error) if whole.error else ""
        if whole.usage is not None:
            self._usage(whole.usage)
        if not (whole.choices or whole.error):
            self._other(data)
        for choice in whole.choices or ():
            self.finish = choice.finish_reason or self.finish
            held = choice.message
            if held is None:
                self._spoken |= self._say(choice.text)
            else:
                self._spoken |= self._say(held.content) | self._say(held.refusal)
                self._spoken |= bool(held.tool_calls or held.function_call or held.reasoning_content or held.reasoning)
        self.done = bool(whole.choices)

    def _unary_anthropic(self, whole: Anthropic) -> None:
        self.error = _words(whole.error) if whole.error else ""
        if whole.usage is not None:
            self._usage(whole.usage)
        for block in whole.content or ():
            self._spoken |= self._say(block.text) | bool(block.input)
        self.finish = whole.stop_reason or ""
        self.done = whole.content is not None


def _words(error: Any) -> str:
    found = error.get("message", error) if isinstance(error, dict) else error
    return str(found or "error")[:300]


def _shown(data: bytes) -> str:
    """The beginning of a body in one line."""
    text = " ".join(data[:4 * SHOWN].decode("utf-8", "replace").split())[:SHOWN]
    return "".join(letter if letter.isprintable() else "?" for letter in text) or "nothing"
