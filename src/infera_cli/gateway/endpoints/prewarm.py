"""`/v1/cache/prewarm`: a hint to the cache daemon (infera-wire §3.4; C38)."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from infera_cli.errors import NoRoutableWorker, RequestError
from infera_cli.gateway.endpoints.guards import admin_guard
from infera_cli.gateway.endpoints.parts import ControlParts
from infera_cli.gateway.endpoints.reading import read_body

_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
_DEADLINE_MS = 1000


def routes(parts: ControlParts) -> APIRouter:
    """The one route, behind the admin token."""
    router = APIRouter(tags=["admin"], dependencies=[Depends(admin_guard(parts.access))])

    @router.post(
        "/v1/cache/prewarm", operation_id="prewarm", summary="Have blocks fetched before they are asked for",
        status_code=202,
    )  # fmt: skip
    async def prewarm(request: Request) -> JSONResponse:
        """Sent is not done: the daemon never answers, and drops what it has no room for."""
        body = _object(await read_body(request, parts.body_limit))
        model, hashes = _model(body), _hashes(body)
        if hashes:
            keys = [_key(given) for given in hashes]
            compat_key, deadline_ms = _compat_key(body), _deadline(body)
            if parts.prewarm is None:
                raise NoRoutableWorker("There is no cache daemon here: start the server with --kvd-socket-path.")
            await parts.prewarm(keys, model, compat_key, deadline_ms)
        return JSONResponse({"accepted": True, "n_keys": len(hashes)}, status_code=202)

    return router


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RequestError("The body is not valid JSON.") from None
    if not isinstance(value, dict):
        raise RequestError("The body must be a JSON object.")
    return value


def _model(body: dict[str, Any]) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise RequestError("model: must be the name of a model.", param="model")
    return model


def _hashes(body: dict[str, Any]) -> list[str]:
    hashes = body.get("block_hashes")
    if not isinstance(hashes, list) or not all(isinstance(one, str) for one in hashes):
        raise RequestError("block_hashes: must be a list of strings.", param="block_hashes")
    return hashes


def _key(given: str) -> bytes:
    if _HEX.fullmatch(given) is None:
        raise RequestError(f"block_hashes: {given[:40]!r} is not hexadecimal.", param="block_hashes")
    return bytes.fromhex(given)


def _compat_key(body: dict[str, Any]) -> str:
    key = body.get("compat_key", "")
    if not isinstance(key, str):
        raise RequestError("compat_key: must be a string.", param="compat_key")
    return key


def _deadline(body: dict[str, Any]) -> int:
    """Milliseconds; a number in quotes is one too."""
    try:
        deadline = int(body.get("deadline_ms", _DEADLINE_MS))
    except (TypeError, ValueError, OverflowError):
        deadline = 0
    if not 0 < deadline < 1 << 63:
        raise RequestError("deadline_ms: must be a number of milliseconds above 0.", param="deadline_ms")
    return deadline
