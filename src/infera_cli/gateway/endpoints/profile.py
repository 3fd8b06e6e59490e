"""`/v1/admin/profile/…`: the torch profilers of many workers at once (infera-wire §3.5; engines §1.11, §2.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from infera_cli.errors import Forbidden, NotFound, RequestError
from infera_cli.gateway.endpoints.answers import clip
from infera_cli.gateway.endpoints.guards import admin_guard
from infera_cli.gateway.endpoints.health import is_available
from infera_cli.gateway.endpoints.parts import ControlParts, Post
from infera_cli.gateway.endpoints.reading import read_body
from infera_cli.gateway.ports import Member

Action = Literal["start", "stop"]
_SECONDS: dict[Action, float] = {"start": 30.0, "stop": 600.0}
"""Writing traces blocks the engine's answer for minutes (rulings 26)."""
_SELECTORS = ("worker_id", "model", "role")
_ROLES = frozenset({"mixed", "prefill", "decode"})
_DETAIL = 2000


def routes(parts: ControlParts) -> APIRouter:
    """Both routes, behind the admin token."""
    router = APIRouter(tags=["admin"], dependencies=[Depends(admin_guard(parts.access))])

    @router.post("/v1/admin/profile/start", operation_id="start_profile", summary="Start the workers' profilers")
    async def start(request: Request) -> JSONResponse:
        """Every worker that `worker_id`, `model` and `role` leave (query or body), all at once; the rest of the body
        goes to the engines."""
        return JSONResponse(await _act(request, parts, "start"))

    @router.post("/v1/admin/profile/stop", operation_id="stop_profile", summary="Stop them, and write the traces")
    async def stop(request: Request) -> JSONResponse:
        """As start; engines answer when their traces are written, which may take minutes."""
        return JSONResponse(await _act(request, parts, "stop"))

    return router


async def _act(request: Request, parts: ControlParts, action: Action) -> dict[str, Any]:
    if parts.profile is None:
        raise Forbidden("Profiling is off: start the server with --enable-profiling.")
    body = _object(await read_body(request, parts.body_limit))
    chosen = {name: request.query_params.get(name) or body.get(name) for name in _SELECTORS}
    members = _selected(parts, chosen)
    rest = {name: value for name, value in body.items() if name not in _SELECTORS}
    post, told = parts.profile, msgspec.json.encode(rest)
    results = await asyncio.gather(*(_one(post, member, action, told) for member in members))
    return {
        "action": action,
        "requested": len(results),
        "succeeded": sum(result["ok"] for result in results),
        "results": results,
    }


def _object(body: bytes) -> dict[str, Any]:
    """An empty body, or one that is no JSON object, asks for nothing in particular."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _selected(parts: ControlParts, chosen: dict[str, Any]) -> Sequence[Member]:
    role = chosen["role"]
    if role is not None:
        role = role.lower() if isinstance(role, str) else role
        if role not in _ROLES:
            raise RequestError(f"role: must be one of {', '.join(sorted(_ROLES))}.", param="role")
    name, model = chosen["worker_id"], chosen["model"]
    found = [
        member for member in parts.fleet.members()
        if is_available(member) and name in {None, member.worker.id} and role in {None, member.spec.role}
        and (model is None or model in member.models)
    ]  # fmt: skip
    if not found:
        asked = ", ".join(f"{key} {clip(str(value))!r}" for key, value in chosen.items() if value is not None)
        raise NotFound(f"No active worker matches {asked or 'the request'}; GET /v1/workers lists them.")
    return found


async def _one(post: Post, member: Member, action: Action, body: bytes) -> dict[str, Any]:
    spec = member.spec
    status: int | None = None
    try:
        reply = await post(spec, f"/{action}_profile", timeout=_SECONDS[action], body=body)
        status, detail = reply.status, _detail(reply.body)
    except OSError as error:
        detail = f"{type(error).__name__}: {error}"
    return {
        "worker_id": spec.id, "url": spec.url, "engine": spec.engine, "status_code": status,
        "ok": status is not None and status < 400, "detail": detail,
    }  # fmt: skip


def _detail(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body[:_DETAIL].decode("utf-8", "replace")
