"""`GET /status` and `/admin/nodes/{id}/…`: nodes in the scheduler's words (replica-router §2.2, §2.10; R112)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from infera_cli.errors import NotFound
from infera_cli.gateway.access import Access
from infera_cli.gateway.endpoints.answers import clip
from infera_cli.gateway.ports import Fleet, Member

_AT_A_TIME = 32
"""Nodes described between two turns of the event loop, so that no request waits for a long list."""


class NodeView(Protocol):
    """What is shown of one node."""

    def __call__(self, member: Member) -> dict[str, Any]:
        """Its entry in `/status`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """Behind these routes; `describe` makes a node's entry, `total` counts requests, `uptime` is in seconds."""

    describe: NodeView
    total: Callable[[], int]
    uptime: Callable[[], float]
    flush: Callable[[], None]
    mode: Callable[[], dict[str, Any]]


def routes(nodes: NodeParts, fleet: Fleet, access: Access, version: str) -> APIRouter:
    """The three routes; the status needs no key, the others always do (rulings 6)."""
    router = APIRouter(tags=["nodes"])

    @router.get("/status", operation_id="scheduler_status", summary="State of all nodes")
    async def status() -> JSONResponse:
        """Every node: health, cache, requests, p99 latency of the last five minutes."""
        nodes.flush()
        return JSONResponse({
            "scheduler_version": version,
            "uptime_seconds": int(nodes.uptime()),
            "nodes": await _entries(nodes.describe, list(fleet.members())),
            "total_requests_routed": nodes.total(),
            **nodes.mode(),
        })  # fmt: skip

    @router.post("/admin/nodes/{node_id}/drain", operation_id="drain_node", summary="Drain a node")
    async def drain(node_id: str, request: Request) -> JSONResponse:
        """No new requests for the node; those in flight finish. Survives probes, not a restart; twice is the same."""
        access.require_node_key(request.scope["headers"])
        return JSONResponse(_change(fleet, node_id, fleet.drain))

    @router.post("/admin/nodes/{node_id}/restore", operation_id="restore_node", summary="Restore a node")
    async def restore(node_id: str, request: Request) -> JSONResponse:
        """Undo a drain."""
        access.require_node_key(request.scope["headers"])
        return JSONResponse(_change(fleet, node_id, fleet.restore))

    return router


async def _entries(describe: NodeView, members: list[Member]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for place, member in enumerate(members):
        if place and not place % _AT_A_TIME:
            await asyncio.sleep(0)
        entries.append(describe(member))
    return entries


def _change(fleet: Fleet, node_id: str, act: Callable[[str], Member]) -> dict[str, Any]:
    if fleet.member(node_id) is None:
        raise NotFound(f"There is no node {clip(node_id)!r}; GET /status lists them.", param="id")
    member = act(node_id)
    return {"id": member.worker.id, "draining": member.draining, "requests_in_flight": member.outstanding}


def health_word(member: Member, degraded: bool) -> str:
    """`healthy`, `degraded` or `offline`: draining is told apart, and stalled is degraded with a flag of its own."""
    if not member.ready:
        return "offline"
    return "degraded" if degraded or member.stalled else "healthy"
