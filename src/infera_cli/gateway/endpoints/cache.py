"""`/v1/admin/cache-view/{worker_id}`: how much of a worker's cache is known here (infera-wire §3.3); and
`/v1/admin/sessions`: conversations that lost their place in it."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import JSONResponse

from infera_cli.gateway.endpoints.guards import admin_guard
from infera_cli.gateway.endpoints.parts import ControlParts

Rank = Annotated[str | None, Query(description="Of this data-parallel rank alone")]

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_NO_RANK = {
    "type": "int_parsing", "loc": ["query", "dp_rank"], "msg": "dp_rank must be a whole number of at most 18 digits",
}  # fmt: skip


def routes(parts: ControlParts) -> APIRouter:
    """The view, behind the admin token."""
    router = APIRouter(tags=["admin"], dependencies=[Depends(admin_guard(parts.access))])

    @router.get("/v1/admin/cache-view/{worker_id:path}", operation_id="cache_view", summary="What a cache holds")
    async def cache_view(worker_id: str, dp_rank: Rank = None) -> JSONResponse:
        """Blocks that the worker is known to hold; 0 for an unknown one. 503 when the policy is not kv-aware."""
        rank = None
        if dp_rank is not None:
            if not _WHOLE.fullmatch(dp_rank):
                return JSONResponse({"detail": [_NO_RANK]}, status_code=422)
            rank = int(dp_rank)
        if parts.cached_blocks is None:
            detail = f"The routing policy is {parts.policy}; caches are watched by kv-aware alone."
            return JSONResponse({"detail": detail}, status_code=503)
        count = parts.cached_blocks(worker_id, rank)
        return JSONResponse({"worker_id": worker_id, "dp_rank": rank, "block_count": count})

    @router.get("/v1/admin/sessions", operation_id="sessions", summary="Sessions that stopped matching")
    async def sessions() -> JSONResponse:
        """Sessions whose prompt no longer begins as it did: the turn, the first part that differs, and the tokens
        that were lost by it. 503 when the policy is not kv-aware."""
        if parts.broken_sessions is None:
            detail = f"The routing policy is {parts.policy}; prompts are read by kv-aware alone."
            return JSONResponse({"detail": detail}, status_code=503)
        return JSONResponse({"sessions": [dict(row) for row in parts.broken_sessions()]})

    return router
