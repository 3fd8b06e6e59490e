"""`GET /v1/admin/trace`: a trace of what is served from now on, without what is said."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse

from infera_cli.errors import NotFound
from infera_cli.gateway.endpoints.guards import admin_guard
from infera_cli.gateway.endpoints.parts import ControlParts

Seconds = Annotated[float, Query(gt=0, le=86_400, description="How long to record")]


def routes(parts: ControlParts) -> APIRouter:
    """The recording, behind the admin token."""
    router = APIRouter(tags=["admin"], dependencies=[Depends(admin_guard(parts.access))])

    @router.get("/v1/admin/trace", operation_id="record_trace", summary="Record a trace")
    async def record_trace(seconds: Seconds = 600.0) -> StreamingResponse:
        """Each request as it ends, a line of Mooncake JSON: time, lengths, block ids. Ends when time is up, or with
        the connection. Empty lines mean that nothing ended lately."""
        if parts.trace is None:
            raise NotFound("This server does not record traces.")
        lines = parts.trace.record(seconds, parts.is_draining)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    return router
