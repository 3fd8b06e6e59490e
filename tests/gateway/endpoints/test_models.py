"""Models in both APIs' shapes, and names that stand for them."""

from __future__ import annotations

from typing import Any

import anthropic.types
import pytest

from infera_cli.gateway.translation.aliases import Aliases
from tests.gateway.endpoints import world

CARD = {"id": "m", "object": "model", "created": 1_700_000_000, "owned_by": "vllm", "max_model_len": 2048}
VERSION = {"anthropic-version": "2023-06-01"}
pytestmark = pytest.mark.asyncio


async def got(path: str, *, headers: dict[str, str] | None = None, aliases: Aliases | None = None) -> tuple[int, Any]:
    fleet = world.FakeFleet([world.member("a")], [CARD])
    async with world.client(world.parts(fleet, aliases=aliases or Aliases())) as http:
        response = await http.get(path, headers=headers)
        return response.status_code, response.json()


async def test_r031_a_card_keeps_the_engines_own_words() -> None:
    """Every member that the engine reports is there."""
    assert await got("/v1/models") == (200, {"object": "list", "data": [CARD]})
    assert await got("/v1/models/m") == (200, CARD)


async def test_models_have_anthropics_shape_for_its_clients() -> None:
    """A client that names a version of that API reads its list and its model."""
    _, listed = await got("/v1/models", headers=VERSION)
    assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (False, "m", "m")
    model = anthropic.types.ModelInfo.model_validate(listed["data"][0])
    assert (model.id, model.type, model.created_at.year) == ("m", "model", 2023)
    assert (await got("/v1/models/m", headers=VERSION))[1] == listed["data"][0]


async def test_names_that_stand_for_a_model_are_listed_and_found() -> None:
    """Exact names are in the list; what a pattern covers is found by asking for it."""
    aliases = Aliases(["small=m", "claude-*=m", "gone=unknown"])
    _, listed = await got("/v1/models", aliases=aliases)
    assert [card["id"] for card in listed["data"]] == ["m", "small"]
    assert await got("/v1/models/claude-x", aliases=aliases) == (200, {**CARD, "id": "claude-x"})


async def test_an_unknown_model_is_404_and_lists_what_is_served() -> None:
    """In the shape of the API that the client speaks."""
    status, body = await got("/v1/models/nope")
    assert (status, body["error"]["code"]) == (404, "model_not_found")
    assert "served: m" in body["error"]["message"]
    status, theirs = await got("/v1/models/nope", headers=VERSION)
    assert (status, theirs["type"], theirs["error"]["type"]) == (404, "error", "not_found_error")
    assert theirs["error"]["message"] == body["error"]["message"]


async def test_r032_an_odd_card_spoils_no_list_of_either_api() -> None:
    """Without a date, with a root of null, with a window that is no number: both lists come, each id once."""
    fleet = world.FakeFleet([world.member("a")], [CARD, {"id": "odd", "root": None}, {"id": "n", "created": "soon"}])
    async with world.client(world.parts(fleet)) as http:
        listed = (await http.get("/v1/models")).json()
        theirs = (await http.get("/v1/models", headers=VERSION)).json()
    assert [card["id"] for card in listed["data"]] == [card["id"] for card in theirs["data"]] == ["m", "odd", "n"]
    for card in theirs["data"]:
        anthropic.types.ModelInfo.model_validate(card)
