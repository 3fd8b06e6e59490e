"""What an engine says is wrong, in Anthropic's words (engines.md §1.10, §2.7).

A prompt that does not fit is said the way that coding agents parse: they shorten the conversation, or ask for less.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from infera_cli.protocol import anthropic

_MESSAGE_LIMIT = 2000
_OVERLOADED = 529
_STATUS = {422: 400, 503: _OVERLOADED}
"""Statuses that Anthropic's API has another one for."""

_SIZE = r"(\d[\d,]*)"
_LIMITS = re.compile(
    rf"(?:maximum context length(?: is| of)?|context length is only|model's context length|maximum model length)"
    rf"\D{{0,20}}{_SIZE}"
)
_ANSWER_ALONE = re.compile(rf"max_tokens={_SIZE} cannot be greater than max_model_len={_SIZE}")
_PROMPTS = (
    re.compile(rf"prompt contains (?:at least )?{_SIZE} input tokens"),
    re.compile(rf"{_SIZE} tokens from the input"),
    re.compile(rf"{_SIZE} in the (?:messages|prompt)"),
    re.compile(rf"passed {_SIZE} input tokens"),
    re.compile(rf"input \({_SIZE} tokens\)"),
    re.compile(rf"prompt \(length {_SIZE}\)"),
)
_ANSWERS = (
    re.compile(rf"requested {_SIZE} output tokens"),
    re.compile(rf"{_SIZE} (?:tokens for|in) the completion"),
)


def engine_error(status: int, body: bytes, max_tokens: int | None) -> tuple[int, bytes]:
    """An engine's refusal as (status, body) of the Messages API; `max_tokens` is what the client asked for."""
    told = message_of(body) or f"The engine answered {status}."
    status = _STATUS.get(status, status)
    if status in {400, 413}:
        overflow = in_agents_words(told, max_tokens)
        if overflow is not None:
            status, told = 400, overflow
    return status, anthropic.error_body(told, status=status)


def engine_error_event(data: bytes) -> bytes:
    """An engine's error inside a stream, as the event that ends ours (R047)."""
    return anthropic.error_event(message_of(data) or "The engine failed.", status=_status_in(data))


def message_of(body: bytes) -> str:
    """The sentence inside an engine's error, in any of their shapes; empty when there is none."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body[:_MESSAGE_LIMIT].decode("utf-8", "replace").strip() if not body.startswith(b"<") else ""
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and value.get(name):
            value = value[name]
    return value[:_MESSAGE_LIMIT] if isinstance(value, str) else ""


def _status_in(data: bytes) -> int:
    value: Any = msgspec.json.decode(data)
    inside = value.get("error")
    code = inside.get("code") if isinstance(inside, dict) else value.get("code")
    status = code if type(code) is int and 400 <= code < 600 else 500
    return _STATUS.get(status, status)


def in_agents_words(told: str, max_tokens: int | None) -> str | None:
    """The sentence of Anthropic's API for a context that is too long; None when `told` says something else."""
    alone = _ANSWER_ALONE.search(told)
    if alone is not None:
        most = "which is the maximum allowed number of output tokens for this model"
        return f"max_tokens: {alone[1]} > {alone[2]}, {most}"
    limit = _number(_LIMITS.search(told))
    if limit is None:
        return None
    prompt = _first(_PROMPTS, told)
    if prompt is None:
        return f"prompt is too long: {told}"
    answer = _first(_ANSWERS, told) or max_tokens or 0
    if prompt >= limit or not answer:
        return f"prompt is too long: {prompt} tokens > {limit} maximum"
    return (
        f"input length and `max_tokens` exceed context limit: {prompt} + {answer} > {limit}, "
        "decrease input length or `max_tokens` and try again"
    )


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    found = (_number(pattern.search(text)) for pattern in patterns)
    return next((number for number in found if number is not None), None)


def _number(found: re.Match[str] | None) -> int | None:
    return int(found[1].replace(",", "")) if found else None
