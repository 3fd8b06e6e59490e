"""`GET /replicas`: the fleet in the replica router's words, and its capacity (replica-router §1.12; B23)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from infera_cli.gateway.endpoints.guards import admin_guard
from infera_cli.gateway.endpoints.parts import Capacity, ControlParts
from infera_cli.gateway.ports import Member


def routes(parts: ControlParts) -> APIRouter:
    """The listing, behind the admin token."""
    router = APIRouter(tags=["replicas"], dependencies=[Depends(admin_guard(parts.access))])

    @router.get("/replicas", operation_id="list_replicas", summary="Replicas and capacity")
    async def list_replicas() -> JSONResponse:
        """Every replica with its state, and how many more the router may launch."""
        rows = [_row(member) for member in parts.fleet.members()]
        return JSONResponse({"replicas": rows, "capacity": capacity_body(parts.capacity())})

    return router


def capacity_body(capacity: Capacity) -> dict[str, Any]:
    """At most as many free slots as may still be launched, in pool order."""
    left = max(0, capacity.ceiling - capacity.owned)
    return {
        "owned": capacity.owned,
        "ceiling": capacity.ceiling,
        "free_slots": list(capacity.free_slots[:left]),
    }


def _row(member: Member) -> dict[str, Any]:
    return {
        "name": member.worker.id,
        "url": member.spec.url,
        "ready": member.ready,
        "draining": member.draining,
        "owned": member.owned,
        "outstanding": member.outstanding,
        "routed": member.routed,
    }
