"""`/replicas`: the fleet in the replica router's words; launch one, drain and stop one (replica-router §1.12)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.responses import JSONResponse

from infera_cli.errors import Conflict, FleetError, NotFound
from infera_cli.gateway.endpoints.answers import clip
from infera_cli.gateway.endpoints.guards import admin_guard
from infera_cli.gateway.endpoints.parts import Capacity, ControlParts, Supervisor
from infera_cli.gateway.ports import Member

Slot = Annotated[str | None, Query(description="Launch on this slot; without it, on the next free one")]
Drain = Annotated[bool, Query(description="Let open requests finish before it is stopped")]


def routes(parts: ControlParts) -> APIRouter:
    """List, launch and stop, behind the admin token."""
    router = APIRouter(tags=["replicas"], dependencies=[Depends(admin_guard(parts.access))])

    @router.get("/replicas", operation_id="list_replicas", summary="Replicas and capacity")
    async def list_replicas() -> JSONResponse:
        """Every replica with its state, how many more may be launched, and what is on the declared slots."""
        body: dict[str, Any] = {
            "replicas": [_row(member) for member in parts.fleet.members()],
            "capacity": capacity_body(parts.capacity()),
        }
        if parts.supervisor is not None:
            body["slots"] = list(parts.supervisor.slots())
        return JSONResponse(body)

    @router.post("/replicas", operation_id="launch_replica", summary="Launch a replica", status_code=202)
    async def launch_replica(slot: Slot = None) -> JSONResponse:
        """Start one replica on the next free declared devices; it takes requests once it is ready."""
        if parts.supervisor is None:
            return _refusal(parts, Conflict("No machines are declared to launch on; name them under \"hosts\"."))
        try:
            name, url = await parts.supervisor.launch(slot)
        except Conflict as full:
            return _refusal(parts, full)
        message = "Launched; it takes requests once GET /health of it answers 200."
        return JSONResponse({"name": name, "url": url, "ready": False, "message": message}, 202)

    @router.delete("/replicas/{name:path}", operation_id="stop_replica", summary="Drain and stop a replica")
    async def stop_replica(name: str, drain: Drain = True) -> JSONResponse:
        """Drain a launched replica, stop it, and free its devices; answers when that is done."""
        left = await _owner(parts, name).stop(name, drain=drain)
        if left is not None:
            raise FleetError(f"{name} was told to stop and is out of the fleet, but {left}.")
        return JSONResponse({"name": name, "stopped": True, "capacity": capacity_body(parts.capacity())})

    return router


def _owner(parts: ControlParts, name: str) -> Supervisor:
    if parts.supervisor is not None and parts.supervisor.owns(name):
        return parts.supervisor
    if parts.fleet.member(name) is None:
        raise NotFound(f"There is no replica {clip(name)!r}; GET /replicas lists them.")
    raise Conflict(f"{clip(name)!r} was not launched by this server, which stops only what it launched.")


def _refusal(parts: ControlParts, full: Conflict) -> JSONResponse:
    body = {"object": "error", "message": full.message, "capacity": capacity_body(parts.capacity())}
    return JSONResponse(body, full.status)


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
