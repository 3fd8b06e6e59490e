"""`/v1/models`: what the fleet serves, from memory; no worker is asked meanwhile (rulings 9; R032, B22)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from infera_cli.errors import ModelNotFound, NoRoutableWorker
from infera_cli.gateway.endpoints.answers import clip
from infera_cli.gateway.endpoints.guards import client_guard
from infera_cli.gateway.endpoints.health import is_available
from infera_cli.gateway.endpoints.parts import ControlParts


def routes(parts: ControlParts) -> APIRouter:
    """The two model routes, behind the client key."""
    router = APIRouter(tags=["models"], dependencies=[Depends(client_guard(parts.access))])

    @router.get("/v1/models", operation_id="list_models", summary="Models of the fleet")
    async def list_models() -> JSONResponse:
        """The union of what all routable workers list, each id once."""
        return JSONResponse({"object": "list", "data": cards(parts)})

    @router.get("/v1/models/{model:path}", operation_id="get_model", summary="One model")
    async def get_model(model: str) -> JSONResponse:
        """The card of one model; 404 names what is served."""
        known = cards(parts)
        for card in known:
            if card["id"] == model:
                return JSONResponse(card)
        served = ", ".join(str(card["id"]) for card in known) or "none yet"
        raise ModelNotFound(
            f"The model {clip(model)!r} is not served here; served: {served}.",
            param="model",
            code="model_not_found",
        )

    return router


def cards(parts: ControlParts) -> list[dict[str, Any]]:
    """All cards; raises NoRoutableWorker when no worker named by a file could serve any."""
    if parts.source_kind == "files" and not any(map(is_available, parts.fleet.members())):
        raise NoRoutableWorker("No worker can take requests now, so no model is served; see /health.")
    return list(parts.fleet.model_cards())
