"""`/v1/admin/…`: drain and restore workers, explain a decision, look at past requests (R112)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, get_args

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse

from infera_cli.errors import NotFound, RequestError
from infera_cli.events import Outcome
from infera_cli.gateway.access import RawHeaders
from infera_cli.gateway.endpoints.answers import clip
from infera_cli.gateway.endpoints.guards import admin_guard
from infera_cli.gateway.endpoints.parts import ControlParts, Explanation
from infera_cli.gateway.endpoints.reading import read_body
from infera_cli.gateway.endpoints.workers import status_of
from infera_cli.gateway.ports import Member
from infera_cli.gateway.relayed import is_relayed


def routes(parts: ControlParts) -> APIRouter:
    """All admin routes, behind the admin token."""
    router = APIRouter(tags=["admin"], dependencies=[Depends(admin_guard(parts.access))])
    _worker_routes(router, parts)
    _explain_route(router, parts)
    _requests_route(router, parts)
    return router


# ── workers ──────────────────────────────────────────────────────────────────────────────────────────
def _worker_routes(router: APIRouter, parts: ControlParts) -> None:
    @router.post(
        "/v1/admin/workers/{worker_id:path}/drain", operation_id="drain_worker", summary="Drain a worker"
    )
    async def drain(worker_id: str) -> JSONResponse:
        """Give the worker no new work; requests in flight finish. Sticky, and the same answer twice."""
        return JSONResponse(_change(parts, worker_id, parts.fleet.drain))

    @router.post(
        "/v1/admin/workers/{worker_id:path}/restore",
        operation_id="restore_worker",
        summary="Restore a worker",
    )
    async def restore(worker_id: str) -> JSONResponse:
        """Undo a drain."""
        return JSONResponse(_change(parts, worker_id, parts.fleet.restore))


def _change(parts: ControlParts, worker_id: str, act: Callable[[str], Member]) -> dict[str, Any]:
    if parts.fleet.member(worker_id) is None:
        message = f"There is no worker {clip(worker_id)!r}; GET /v1/workers lists them."
        raise NotFound(message, param="worker_id")
    member = act(worker_id)
    return {"worker_id": member.worker.id, "status": status_of(member), "outstanding": member.outstanding}


# ── explain ──────────────────────────────────────────────────────────────────────────────────────────
class ExplainAsk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request as a client would send it; `body` is JSON, as it is written, or a string that is the raw body."""

    path: str = "/v1/chat/completions"
    headers: dict[str, str] = {}
    body: msgspec.Raw = msgspec.Raw(b"null")


_EXPLAIN_SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "example": {
                    "path": "/v1/chat/completions",
                    "headers": {"X-Session-Id": "chat-1"},
                    "body": {"model": "my-model", "messages": [{"role": "user", "content": "Hello"}]},
                }
            }
        },
    }
}


def _explain_route(router: APIRouter, parts: ControlParts) -> None:
    @router.post(
        "/v1/admin/explain",
        operation_id="explain",
        summary="Explain a decision",
        openapi_extra=_EXPLAIN_SCHEMA,
    )
    async def explain(request: Request) -> JSONResponse:
        """Decide for a request and say why: every candidate with its score or fault. Nothing is sent."""
        ask, body = _decode_ask(await read_body(request, parts.body_limit))
        if not is_relayed(ask.path):
            raise RequestError(f"{clip(ask.path)} is not relayed, so nobody is picked for it.", param="path")
        return JSONResponse(_explanation(await parts.explain(ask.path, _raw_headers(ask), body)))


def _decode_ask(body: bytes) -> tuple[ExplainAsk, bytes]:
    """What is asked, and the body it would have."""
    try:
        ask = msgspec.json.decode(body, type=ExplainAsk)
        return ask, _raw_body(bytes(ask.body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(
            'The body must be JSON like {"path": "/v1/chat/completions", "headers": {}, "body": {}}: '
            f"{clip(str(error))}."
        ) from error


def _raw_headers(ask: ExplainAsk) -> RawHeaders:
    return [(name.lower().encode(), value.encode()) for name, value in ask.headers.items()]


def _raw_body(body: bytes) -> bytes:
    if body.startswith(b'"'):
        return msgspec.json.decode(body, type=str).encode()
    return b"" if body == b"null" else body


def _explanation(found: Explanation) -> dict[str, Any]:
    return {
        "worker": found.worker,
        "why": found.why,
        "affinity": found.affinity,
        "policy": found.policy,
        "model": found.model,
        "session": found.session,
        "error": found.error,
        "candidates": [
            {"worker": c.worker, "outstanding": c.outstanding, "dropped": c.dropped, "terms": c.terms}
            for c in found.candidates
        ],
    }


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────
_OUTCOMES: tuple[str, ...] = get_args(Outcome)
_FILTERS = ("slow", "worker", "session", "status", "limit")
_STATUS = re.compile(rf"[1-5]([0-9]{{2}}|xx)|{'|'.join(_OUTCOMES)}")
Slow = Annotated[float | None, Query(ge=0, description="At least this many seconds in total")]
ByWorker = Annotated[str | None, Query(description="Served by this worker")]
BySession = Annotated[str | None, Query(description="Of this session")]
ByStatus = Annotated[str | None, Query(description="A code (503), a class (5xx) or an outcome (broken)")]
Limit = Annotated[int, Query(ge=1, le=10_000, description="At most so many, newest first")]


def _requests_route(router: APIRouter, parts: ControlParts) -> None:
    @router.get("/v1/admin/requests", operation_id="list_requests", summary="Past requests")
    async def list_requests(
        request: Request,
        slow: Slow = None, worker: ByWorker = None, session: BySession = None, status: ByStatus = None,
        limit: Limit = 100,
    ) -> JSONResponse:
        """The last few thousand relayed requests: who served them, why, how long each step took."""
        unknown = [name for name in request.query_params if name not in _FILTERS]
        if unknown:
            message = f"There is no filter {clip(unknown[0])!r}; the known ones are {', '.join(_FILTERS)}."
            raise RequestError(message, param=clip(unknown[0]))
        if status is not None and not _STATUS.fullmatch(status):
            outcomes = ", ".join(_OUTCOMES)
            message = f"status must be a code such as 503, a class such as 5xx, or one of {outcomes}."
            raise RequestError(message, param="status")
        found = parts.journal.query(slow=slow, worker=worker, session=session, status=status, limit=limit)
        return JSONResponse({"requests": [dict(row) for row in found]})
