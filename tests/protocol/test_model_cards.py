"""Model lists as engines answer them."""

from __future__ import annotations

import json

import pytest

from infera_cli.protocol.model_cards import parse_cards


def test_r031_a_card_is_kept_with_all_its_keys() -> None:
    """What the engine reports is what is kept, the context limit included."""
    card = {"id": "q", "object": "model", "created": 1, "owned_by": "vllm", "root": "/m", "parent": None,
            "max_model_len": 262144, "permission": [{"id": "p"}]}
    assert parse_cards(json.dumps({"object": "list", "data": [card]}).encode()) == [card]


def test_r031_an_id_listed_twice_is_one_card() -> None:
    """The first card of an id stands."""
    body = json.dumps({"data": [{"id": "a", "n": 1}, {"id": "b"}, {"id": "a", "n": 2}]}).encode()
    assert parse_cards(body) == [{"id": "a", "n": 1}, {"id": "b"}]


def test_r032_odd_cards_do_not_spoil_the_good_ones() -> None:
    """Entries without a string id are left out; missing or null keys are no fault."""
    body = json.dumps({"data": [{"id": "a", "root": None}, "x", None, {}, {"id": 5}, {"id": ""}]}).encode()
    assert parse_cards(body) == [{"id": "a", "root": None}]


@pytest.mark.parametrize("body", [
    b"", b"<html>", b"null", b"[]", b"{}", b'{"data": null}', b'{"data": {"id": "a"}}', b'{"data": []}',
    b'{"data": [1]}', b"\xff", b'{"data": ' + b"[" * 100_000,
])
def test_r032_what_is_no_model_list_says_nothing(body: bytes) -> None:
    """A body that names no model is None."""
    assert parse_cards(body) is None
