"""The answer to `GET /v1/models` as engines give it (engines.md §1.5, §2.3, §4)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

_LATEST = 1 << 37
"""Seconds since 1970 that a calendar still has a year for."""


def parse_cards(body: bytes) -> list[dict[str, Any]] | None:
    """The model cards of `body`, each id once, every key kept; None when it is no list of models.

    Only objects with a non-empty string `id` count, whatever else they lack (R032): some engines leave out
    `created` or `root`. A list without a single such card says nothing, and is None as well.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    data = value.get("data") if isinstance(value, dict) else None
    if not isinstance(data, list):
        return None
    cards: dict[str, dict[str, Any]] = {}
    for card in data:
        if isinstance(card, dict) and isinstance(card.get("id"), str) and card["id"]:
            cards.setdefault(card["id"], card)
    return list(cards.values()) or None


def model_info(card: dict[str, Any]) -> dict[str, Any]:
    """The card in the shape of Anthropic's API."""
    created = card.get("created")
    known = created if type(created) is int and 0 <= created < _LATEST else 0
    made = datetime.fromtimestamp(known, UTC)
    return {
        "type": "model", "id": card["id"], "display_name": card["id"], "lifecycle": "active",
        "created_at": made.isoformat().replace("+00:00", "Z"), "max_input_tokens": card.get("max_model_len"),
    }  # fmt: skip
