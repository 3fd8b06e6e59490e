"""Token counts from the ends of answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infera_cli.telemetry.usage import Usage, read_all, read_usage

OPENAI = {"prompt_tokens": 12, "total_tokens": 20, "completion_tokens": 8}
CACHED = {**OPENAI, "prompt_tokens_details": {"cached_tokens": 4}}
RESPONSES = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 1}, "output_tokens": 2}
ANTHROPIC = {"input_tokens": 7, "output_tokens": 3, "cache_read_input_tokens": 2}


def unary(usage: Any, **after: Any) -> bytes:
    return json.dumps({"id": "x", "choices": [{"text": 'he said "usage"'}], "usage": usage, **after}).encode()


@pytest.mark.parametrize(
    ("tail", "usage"),
    [
        (unary(OPENAI), (12, 8, 0)),
        (unary(CACHED), (12, 8, 4)),
        (unary({**OPENAI, "prompt_tokens_details": None}, prompt_logprobs=None), (12, 8, 0)),
        (unary({"prompt_tokens": 5, "total_tokens": 5}), (5, 0, 0)),
        (unary(ANTHROPIC), (7, 3, 2)),
        (json.dumps(json.loads(unary(CACHED)), indent=2).encode(), (12, 8, 4)),
        (unary(CACHED)[40:], (12, 8, 4)),
        (b"data: " + unary(CACHED) + b"\n\ndata: [DONE]\n\n", (12, 8, 4)),
        (b'data: {"usage":{"output_tokens":15},"type":"message_delta"}\n\nevent: x\n\n', (0, 15, 0)),
        (b"data: " + json.dumps({"response": {"usage": RESPONSES}, "n": 4}).encode(), (9, 2, 1)),
        (b'{"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n{"usage":null}', (3, 1, 0)),
    ],
)  # fmt: skip
def test_usage_is_read_from_every_dialect(tail: bytes, usage: Usage) -> None:
    """Unary and streamed OpenAI, Anthropic and Responses answers tell their tokens."""
    assert read_usage(tail) == usage


@pytest.mark.parametrize(
    "tail",
    [
        b"", b"data: [DONE]\n\n", b'{"usage":null}', b'{"usage":{}}', b'"usage"',
        b'{"text":"\\"usage\\": 5"}', b'{"usage":{"prompt_tokens":"many"}}', b"\x1f\x8b\x08usage",
        b'{"usage":{"prompt_tokens":' + b"9" * 400 + b"}}", b'"usage"' * 500,
        b'{"usage":{"prompt_tokens":-5,"completion_tokens":-1}}',
    ],
)  # fmt: skip
def test_answer_without_numbers_tells_no_usage(tail: bytes) -> None:
    """Nothing, nonsense, and words of the model are no usage."""
    assert read_usage(tail) in {None, (0, 0, 0)}


def test_many_answers_read_together_tell_what_each_tells() -> None:
    """Neither an answer without usage nor one that cannot be decoded changes what the others say."""
    plain = [unary(OPENAI), unary(CACHED), unary(ANTHROPIC)]
    assert read_all(plain) == [(12, 8, 0), (12, 8, 4), (7, 3, 2)]
    odd = [unary(OPENAI), b"", b'{"usage":{"prompt_tokens":"many"}}', unary(CACHED)[40:] + b"}", unary(ANTHROPIC)]
    assert read_all(odd) == [(12, 8, 0), (12, 8, 4), (7, 3, 2)]
    assert read_all([]) == []
