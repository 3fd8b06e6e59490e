"""`/v1/models`: what the fleet serves, from memory; no worker is asked meanwhile (rulings 9; R032, B22)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from infera_cli.errors import ModelNotFound, NoRoutableWorker
from infera_cli.gateway.endpoints.answers import clip, is_anthropic
from infera_cli.gateway.endpoints.guards import client_guard
from infera_cli.gateway.endpoints.health import is_available
from infera_cli.gateway.endpoints.parts import ControlParts
from infera_cli.gateway.translation.aliases import Aliases
from infera_cli.protocol.model_cards import model_info


def routes(parts: ControlParts) -> APIRouter:
    """The two model routes, behind the client key."""
    router = APIRouter(tags=["models"], dependencies=[Depends(client_guard(parts.access))])

    @router.get("/v1/models", operation_id="list_models", summary="Models of the fleet")
    async def list_models(request: Request) -> JSONResponse:
        """The union of what all routable workers list, each id once, and the names that stand for them.

        In Anthropic's shape for a client that says `anthropic-version`.
        """
        known = cards(parts)
        return JSONResponse(_for_anthropic(known) if is_anthropic(request) else {"object": "list", "data": known})

    @router.get("/v1/models/{model:path}", operation_id="get_model", summary="One model")
    async def get_model(request: Request, model: str) -> JSONResponse:
        """The card of one model, also under a name that stands for it; 404 names what is served."""
        known = cards(parts)
        card = _found(known, model, parts.aliases)
        if card is None:
            served = ", ".join(str(card["id"]) for card in known) or "none yet"
            raise ModelNotFound(
                f"The model {clip(model)!r} is not served here; served: {served}.",
                param="model",
                code="model_not_found",
            )
        return JSONResponse(model_info(card) if is_anthropic(request) else card)

    return router


def _for_anthropic(known: list[dict[str, Any]]) -> dict[str, Any]:
    data = [model_info(card) for card in known]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return {"data": data, "has_more": False, **ends}


def _found(known: list[dict[str, Any]], model: str, aliases: Aliases) -> dict[str, Any] | None:
    by_name = {card["id"]: card for card in known}
    found = by_name.get(model)
    if found is None:
        behind = by_name.get(aliases.resolve(model))
        found = None if behind is None else {**behind, "id": model}
    return found


def cards(parts: ControlParts) -> list[dict[str, Any]]:
    """All cards; raises NoRoutableWorker when no worker named by a file could serve any."""
    if parts.source_kind == "files" and not any(map(is_available, parts.fleet.members())):
        raise NoRoutableWorker("No worker can take requests now, so no model is served; see /health.")
    own = list(parts.fleet.model_cards())
    by_name = {card["id"]: card for card in own}
    named = [(name, by_name.get(model)) for name, model in parts.aliases.exact.items() if name not in by_name]
    return own + [{**card, "id": name} for name, card in named if card is not None]
