"""How an answer looks on each of the three generating routes (engines §1.6; Anthropic's own event stream).

A style makes bytes: `opening`, then `piece` for text, `last` for the text that ends a choice, `closing`; or
`whole`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from infera_cli.simengine.ask import Choice

_json = msgspec.json.encode


class Usage(msgspec.Struct, frozen=True):
    """Tokens of a request: prompt, answer, and those of the prompt found in the cache (None: not told)."""

    prompt: int
    completion: int
    cached: int | None

    def openai(self) -> dict[str, Any]:
        """As OpenAI's `usage`."""
        details = None
        if self.cached is not None:
            details = {"cached_tokens": self.cached, "created_cache_tokens": None}
        return {"prompt_tokens": self.prompt, "total_tokens": self.prompt + self.completion,
                "completion_tokens": self.completion, "prompt_tokens_details": details}

    def anthropic(self) -> dict[str, Any]:
        """As Anthropic's `usage`, where cached tokens are not input tokens."""
        cached = self.cached or 0
        return {"input_tokens": self.prompt - cached, "output_tokens": self.completion,
                "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached}


class Style(Protocol):
    """One route's way of answering."""

    errors: str

    def opening(self, index: int, usage: Usage) -> bytes:
        """Events before the first text of a choice."""

    def piece(self, choice: Choice, text: str) -> bytes:
        """One event with text."""

    def last(self, choice: Choice, text: str, reason: str) -> bytes:
        """The events that end a choice, with its last text."""

    def closing(self, usage: Usage) -> bytes:
        """The events that end the stream."""

    def whole(self, answers: Sequence[tuple[Choice, str, str]], usage: Usage) -> dict[str, Any]:
        """The body of an answer that is not streamed, from (choice, text, reason)."""


def event(value: Any, name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + _json(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"


class OpenAI:
    """What chat and completions share: the frame around choices, the usage chunk, [DONE]."""

    errors = "vllm"
    prefix, chunk, body = "", "", ""

    def __init__(
        self, request: str, model: str, created: int, *, include_usage: bool = False, every_chunk: bool = False
    ) -> None:
        self.id = f"{self.prefix}-{request}"
        self._model = model
        self._created = created
        self._include_usage = include_usage
        self._every_chunk = include_usage and every_chunk
        self._prompt = self._told = 0
        self._around: dict[int, tuple[bytes, bytes]] = {}

    def piece(self, choice: Choice, text: str) -> bytes:
        """One event with text; what surrounds the text is made once, where it is always the same."""
        if self._every_chunk:
            self._told += 1
            return self._event([self._choice(choice, text, None)], **self._so_far())
        around = self._around.get(choice.index)
        if around is None:
            made = self._event([self._choice(choice, "\0", None)])
            before, after = made.split(b'"\\u0000"')
            around = self._around[choice.index] = (before, after)
        return around[0] + _json(text) + around[1]

    def last(self, choice: Choice, text: str, reason: str) -> bytes:
        """The finishing chunk carries both the last text and the reason."""
        extra = {} if self._include_usage else {"system_fingerprint": "sim"}
        self._told += 1
        return self._event([self._choice(choice, text, reason)], **extra, **self._so_far())

    def closing(self, usage: Usage) -> bytes:
        """The usage chunk, if asked for, and [DONE]."""
        if not self._include_usage:
            return DONE
        return self._event([], usage=usage.openai(), system_fingerprint="sim") + DONE

    def _so_far(self) -> dict[str, Any]:
        """Usage of a chunk, where `continuous_usage_stats` asks for it; cached tokens are told at the end only."""
        return {"usage": Usage(self._prompt, self._told, None).openai()} if self._every_chunk else {}

    def _choice(self, choice: Choice, text: str, reason: str | None) -> dict[str, Any]:
        raise AssertionError("each route has its own")

    def _event(self, choices: list[dict[str, Any]], **extra: Any) -> bytes:
        return event({"id": self.id, "object": self.chunk, "created": self._created, "model": self._model,
                      "choices": choices, **extra})

    def _body(self, choices: list[dict[str, Any]], usage: Usage) -> dict[str, Any]:
        return {"id": self.id, "object": self.body, "created": self._created, "model": self._model,
                "choices": choices, "service_tier": None, "system_fingerprint": "sim",
                "usage": usage.openai(), "kv_transfer_params": None}


def _stop_reason(choice: Choice, reason: str | None) -> str | None:
    return choice.stopped_by if reason == "stop" else None


class Chat(OpenAI):
    """`/v1/chat/completions`."""

    prefix, chunk, body = "chatcmpl", "chat.completion.chunk", "chat.completion"

    def opening(self, index: int, usage: Usage) -> bytes:
        """The chunk that only names the role."""
        self._prompt = usage.prompt
        return self._event([{"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None,
                             "finish_reason": None}], prompt_token_ids=None, **self._so_far())

    def _choice(self, choice: Choice, text: str, reason: str | None) -> dict[str, Any]:
        made = {"index": choice.index, "delta": {"content": text}, "logprobs": None, "finish_reason": reason}
        if reason is not None:
            made["stop_reason"] = _stop_reason(choice, reason)
        return made | {"token_ids": None}

    def whole(self, answers: Sequence[tuple[Choice, str, str]], usage: Usage) -> dict[str, Any]:
        """A `chat.completion`."""
        return self._body([
            {"index": choice.index, "logprobs": None, "finish_reason": reason,
             "message": {"role": "assistant", "content": text, "refusal": None, "annotations": None,
                         "audio": None, "function_call": None, "tool_calls": [], "reasoning": None},
             "stop_reason": _stop_reason(choice, reason), "token_ids": None}
            for choice, text, reason in answers
        ], usage)


class Completion(OpenAI):
    """`/v1/completions`."""

    prefix, chunk, body = "cmpl", "text_completion", "text_completion"

    def opening(self, index: int, usage: Usage) -> bytes:
        """Nothing comes before the text."""
        self._prompt = usage.prompt
        return b""

    def _choice(self, choice: Choice, text: str, reason: str | None) -> dict[str, Any]:
        return {"index": choice.index, "text": text, "logprobs": None, "finish_reason": reason,
                "stop_reason": _stop_reason(choice, reason), "prompt_token_ids": None, "token_ids": None}

    def whole(self, answers: Sequence[tuple[Choice, str, str]], usage: Usage) -> dict[str, Any]:
        """A `text_completion`."""
        return self._body([self._choice(choice, text, reason) for choice, text, reason in answers], usage)


_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "abort": "end_turn"}


class Messages:
    """`/v1/messages`, as Anthropic streams it."""

    errors = "messages"

    def __init__(self, request: str, model: str) -> None:
        self.id = f"chatcmpl-{request}"
        self._model = model
        delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "\0"}}
        self._around = event(delta, "content_block_delta").split(b'"\\u0000"')

    def opening(self, index: int, usage: Usage) -> bytes:
        """The message begins with its usage so far, then its one block of text."""
        message = self._message([], None, None, Usage(usage.prompt, 0, usage.cached))
        block = {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
        return event({"type": "message_start", "message": message}, "message_start") + event(
            block, "content_block_start")

    def piece(self, choice: Choice, text: str) -> bytes:
        """One delta."""
        return self._around[0] + _json(text) + self._around[1]

    def last(self, choice: Choice, text: str, reason: str) -> bytes:
        """The last delta and the end of the block; the reason comes with `closing`."""
        self._ended = self._reason(choice, reason)
        return (self.piece(choice, text) if text else b"") + event(
            {"type": "content_block_stop", "index": choice.index}, "content_block_stop")

    def closing(self, usage: Usage) -> bytes:
        """Why it ended, the final usage, and the end of the message."""
        reason, stop = self._ended
        delta = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": stop},
                 "usage": usage.anthropic()}
        return event(delta, "message_delta") + event({"type": "message_stop"}, "message_stop")

    def whole(self, answers: Sequence[tuple[Choice, str, str]], usage: Usage) -> dict[str, Any]:
        """A `message`."""
        choice, text, reason = answers[0]
        return self._message([{"type": "text", "text": text}], *self._reason(choice, reason), usage)

    def _reason(self, choice: Choice, reason: str) -> tuple[str, str | None]:
        stop = _stop_reason(choice, reason)
        return ("stop_sequence", stop) if stop is not None else (_STOP_REASONS[reason], None)

    def _message(
        self, content: list[Any], reason: str | None, stop: str | None, usage: Usage
    ) -> dict[str, Any]:
        return {"id": self.id, "type": "message", "role": "assistant", "content": content,
                "model": self._model, "stop_reason": reason, "stop_sequence": stop,
                "usage": usage.anthropic()}
