"""Records that are JSON and would harm whoever shows them: text, numbers and depth (infera-wire §1.2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infera_cli.protocol.worker_record import BadRecord, parse_record

LEAST: dict[str, Any] = {"worker_id": "a:1", "url": "http://a:1", "model_name": "m"}
KV: dict[str, Any] = {
    "engine_block_size": 16, "index_block_size": 64, "tokenizer": "m", "tokenizer_digest": "0", "tokenizer_canary": [1],
}  # fmt: skip
TEXTS = (
    "worker_id", "url", "model_name", "engine", "request_transport", "kv_events_endpoint", "infera_engine",
    "kv_replay_endpoint",
)  # fmt: skip


def refusal(raw: bytes) -> str:
    with pytest.raises(BadRecord) as fault:
        parse_record("a:1", raw)
    return str(fault.value)


def value(**members: Any) -> bytes:
    return json.dumps({**LEAST, **members}).encode()


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("text", ["m\ud800", "m\n", "m\x1b[2J", "m\0", "m\u202e", "m" * 1025])
def test_text_that_cannot_be_shown_refuses_the_record(name: str, text: str) -> None:
    """An unpaired surrogate, which no answer can hold, what moves a cursor, and what fills a page, in every member."""
    assert refusal(value(**{name: text})).startswith(f'has a "{name}" ')


@pytest.mark.parametrize("inner", [
    {"a": "\ud800"}, {"\ud800": 1}, {"a": [{"b": ["\ud800"]}]}, {"a\n": 1}, {"a": 10**300}, {"a": -(1 << 64)},
])  # fmt: skip
@pytest.mark.parametrize("name", ["disagg_meta", "kv"])
def test_the_same_within_an_object(name: str, inner: dict[str, Any]) -> None:
    """Keys and values, however deep."""
    assert refusal(value(**{name: {**KV, **inner}})).startswith(f'has a "{name}" ')


def test_a_number_that_became_infinite_refuses_the_record() -> None:
    """`1e999` is JSON to read and none to write."""
    raw = value(disagg_meta={"a": 7}).replace(b"7", b"1e999")
    assert refusal(raw) == 'has a "disagg_meta" with a number that is out of range'


def test_depth_and_size_have_limits() -> None:
    """What is nested too deep, or too long for a record."""
    deep: Any = []
    for _ in range(17):
        deep = [deep]
    assert refusal(value(disagg_meta={"a": deep})) == 'has a "disagg_meta" of over 16 levels'
    assert refusal(value(unknown="a" * 70_000)) == "is over 65536 bytes"


@pytest.mark.parametrize(("name", "bad"), [
    ("engine_block_size", 0), ("engine_block_size", True), ("index_block_size", 1 << 40),
    ("tokenizer_canary", ["a"]), ("tokenizer_canary", [1] * 5000),
])  # fmt: skip
def test_numbers_of_the_kv_block_have_bounds(name: str, bad: Any) -> None:
    """As those beside it do."""
    assert refusal(value(kv={**KV, name: bad})) == f'has a "kv" without a usable "{name}"'


@pytest.mark.parametrize(("name", "most"), [("dp_size", 1024), ("dp_rank", 1023)])
def test_ranks_are_as_many_as_a_deployment_has(name: str, most: int) -> None:
    """Each rank is a target of every decision and a subscription, so tens of thousands would stop the router."""
    assert getattr(parse_record("a:1", value(**{name: most})), name) == most
    for beyond in (most + 1, 65536, 1 << 70):
        assert refusal(value(**{name: beyond})).startswith(f'has a "{name}" that is not a whole number from ')


def test_text_in_any_script_is_welcome() -> None:
    """Nothing but what cannot be printed is refused."""
    assert parse_record("a:1", value(model_name="模型-été 🦄")).model_name == "模型-été 🦄"


def test_what_nobody_reads_harms_nobody() -> None:
    """Members that are not known are not looked into."""
    assert parse_record("a:1", value(later="\ud800")) == parse_record("a:1", value())
