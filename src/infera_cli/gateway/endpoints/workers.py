"""`/v1/workers`: every worker, also those that may serve nothing now (infera-wire §3.2)."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from infera_cli.gateway.endpoints.parts import ControlParts
from infera_cli.gateway.ports import Member
from infera_cli.protocol.worker_record import WorkerRecord

DISCOVERED = "etcd"
"""The source of workers that have a record."""


def routes(parts: ControlParts) -> APIRouter:
    """The listing."""
    router = APIRouter(tags=["workers"])

    @router.get("/v1/workers", operation_id="list_workers", summary="Workers of the fleet")
    async def list_workers() -> JSONResponse:
        """Every worker in table order: who it is, whether it may serve, and how much it carries."""
        rows = [worker_row(member, parts.records.get(member.worker.id)) for member in parts.fleet.members()]
        return JSONResponse({"workers": rows})

    return router


def status_of(member: Member) -> str:
    """`active`, `draining` or `dead` (infera-wire §1.2); dead means not ready."""
    if member.draining:
        return "draining"
    if member.stalled and member.ready:
        return "stalled"
    return "active" if member.ready else "dead"


def worker_row(member: Member, record: WorkerRecord | None = None) -> dict[str, Any]:
    """One worker: the fields of infera-wire §3.2, then ours. Its key is never among them.

    `record` is what a worker of that name said about itself in discovery.
    """
    spec = member.spec
    said = record if record is not None and spec.source == DISCOVERED else None
    return {
        "worker_id": member.worker.id,
        "url": spec.url,
        "model_name": member.models[0] if member.models else "",
        "engine": spec.engine,
        "status": status_of(member),
        "disagg_mode": spec.role,
        "disagg_meta": dict(said.disagg_meta) if said else {},
        "kv_events_endpoint": spec.kv_events_endpoint,
        "kv_block_size": spec.kv_block_size,
        "dp_rank": spec.dp_rank,
        "dp_size": spec.dp_size,
        "models": list(member.models),
        "source": spec.source,
        "ready": member.ready,
        "draining": member.draining,
        "stalled": member.stalled,
        "owned": member.owned,
        "outstanding": member.outstanding,
        "routed": member.routed,
        "breaker": member.breaker,
        "breaker_trips": member.breaker_trips,
        "failures": member.failures,
    }
