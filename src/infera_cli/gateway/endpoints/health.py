"""`/health`, `/livez`, `/readyz`: no key and no upstream call (rulings 3; replica-router §1.12).

A worker counts as long as it is ready and not draining; an open breaker or a stale source never changes a
status, both are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from infera_cli.gateway.endpoints.parts import ControlParts
from infera_cli.gateway.ports import Member


def is_available(member: Member) -> bool:
    """Ready and not draining; what its breaker says does not matter here."""
    return member.ready and not member.draining


def routes(parts: ControlParts) -> APIRouter:
    """The three health routes; HEAD is answered as well, load balancers ask that way."""
    router = APIRouter(tags=["health"])

    def health() -> JSONResponse:
        """The router's own view of its workers: 503 when files name the workers and none is routable."""
        body = health_body(parts)
        return JSONResponse(body, status_code=200 if body["status"] == "ok" else 503)

    def livez() -> JSONResponse:
        """200 while the process turns."""
        return JSONResponse({"status": "ok"})

    def readyz() -> JSONResponse:
        """503 while the router drains, or when nothing is routable."""
        status = readiness(parts)
        return JSONResponse({"status": status}, status_code=200 if status == "ready" else 503)

    _add(router, "/health", health, "State of the fleet")
    _add(router, "/livez", livez, "Is the process alive")
    _add(router, "/readyz", readyz, "Should traffic come here")
    return router


def _add(router: APIRouter, path: str, endpoint: Callable[[], JSONResponse], summary: str) -> None:
    async def answer() -> JSONResponse:
        return endpoint()

    answer.__doc__ = endpoint.__doc__
    router.add_api_route(path, answer, methods=["GET"], summary=summary, operation_id=path[1:])
    router.add_api_route(path, answer, methods=["HEAD"], include_in_schema=False)


def readiness(parts: ControlParts) -> str:
    """`ready`, `draining` or `no_replicas`."""
    if parts.is_draining():
        return "draining"
    return "ready" if any(map(is_available, parts.fleet.members())) else "no_replicas"


def health_body(parts: ControlParts) -> dict[str, Any]:
    """The body of `/health`: the keys of replica-router §1.12, `active_workers` of infera-wire §3.2, more."""
    members = parts.fleet.members()
    available = sum(map(is_available, members))
    fine = available > 0 or parts.source_kind == "discovery"
    counters = parts.fleet.counters()
    return {
        "status": "ok" if fine else "no_replicas",
        "replicas_ready": available,
        "replicas_total": len(members),
        "active_workers": available,
        "sessions": counters["sessions"],
        "routed": counters["routed"],
        "affinity_hits": counters["affinity_hits"],
        "rejected": counters["rejected"],
        "draining": parts.is_draining(),
        "policy": parts.policy,
        "version": parts.version,
        "config": parts.config,
        "stale": any(source.stale for source in parts.sources()),
        "sources": [{"name": source.name, "stale": source.stale} for source in parts.sources()],
        "replicas": [_replica(member) for member in members],
    }


def _replica(member: Member) -> dict[str, Any]:
    return {
        "name": member.worker.id,
        "url": member.spec.url,
        "ready": member.ready,
        "draining": member.draining,
        "breaker": member.breaker,
        "outstanding": member.outstanding,
        "routed": member.routed,
    }
