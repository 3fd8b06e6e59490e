"""How the control plane says no: each path in its own dialect, input never echoed at length (R034, S47).

OpenAI's error object everywhere, Anthropic's under `/v1/messages`, and the replica router's own under
`/replicas` and `/health` (replica-router §1.11, §1.12).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from random import random
from secrets import token_bytes

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from infera_cli.errors import InferaError, MethodNotAllowed, NotFound, RequestError
from infera_cli.gateway.identity import ids
from infera_cli.gateway.refusals import anthropic_body, openai_body, refusal_fields, speaks_anthropic
from infera_cli.gateway.relayed import is_relayed
from infera_cli.protocol.failures import status_of
from infera_cli.protocol.headers import RequestHead

ECHO_LIMIT = 200
_JSON = "application/json"
log = logging.getLogger("infera.control")


def clip(text: str) -> str:
    """`text` as far as it may be echoed: printable, at most 200 characters."""
    shown = "".join(c if c.isprintable() else "?" for c in text[:ECHO_LIMIT])
    return shown if len(text) <= ECHO_LIMIT else shown[: ECHO_LIMIT - 1] + "…"


def is_anthropic(request: Request) -> bool:
    """Whether an Anthropic client asks: by the path, or by what it says of itself on a path that both APIs have."""
    path = request.url.path
    shared = path == "/v1/models" or path.startswith("/v1/models/")
    return speaks_anthropic(path) or (shared and "anthropic-version" in request.headers)


def error_body(request: Request, error: InferaError) -> bytes:
    """The body of `error` in the dialect of the request."""
    path = request.url.path
    if path in {"/health", "/replicas"} or path.startswith("/replicas/"):
        return msgspec.json.encode({"object": "error", "message": error.message})
    return anthropic_body(error) if is_anthropic(request) else openai_body(error)


def refuse(request: Request, error: InferaError, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a request that `error` ends."""
    extra = dict(refusal_fields(error, random()), **(headers or {}))  # noqa: S311 - spreads clients, keeps no secret
    status = status_of(error, anthropic=is_anthropic(request))
    return Response(error_body(request, error), status_code=status, headers=extra, media_type=_JSON)


def install(app: FastAPI) -> None:
    """Translate every failure at this one border."""
    app.add_exception_handler(InferaError, _on_our_error)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_bad_parameter)
    app.add_exception_handler(Exception, _on_bug)


async def _on_our_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, InferaError):
        raise error
    return refuse(request, error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Paths and methods that no route answers."""
    if not isinstance(error, HTTPException):
        raise error
    path = request.url.path
    if request.method != "POST" and error.status_code in {404, 405} and is_relayed(path):
        return refuse(request, _wrong_method(request), {"Allow": "POST", **_ids(request)})
    if error.status_code == 404:
        return refuse(request, NotFound(f"There is no {clip(path)} here; /docs lists what there is."))
    if error.status_code == 405:
        return refuse(request, _wrong_method(request), error.headers)
    return refuse(request, RequestError(clip(error.detail)), error.headers)


def _ids(request: Request) -> dict[str, str]:
    """What every answer on a relayed route carries (replica-router §1.11)."""
    name, session = ids(RequestHead(request.scope["headers"]), token_bytes)
    return {"X-Request-Id": name, "X-Infera-Request-Id": name, "X-Session-Id": session}


def _wrong_method(request: Request) -> MethodNotAllowed:
    return MethodNotAllowed(f"{clip(request.url.path)} does not answer to {clip(request.method)}.")


async def _on_bad_parameter(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    where = [str(step) for step in first["loc"] if step not in {"query", "path", "header", "body"}]
    name = clip(".".join(where)) or "request"
    return refuse(request, RequestError(f"{name}: {clip(first['msg'])}.", param=name))


async def _on_bug(request: Request, error: Exception) -> Response:
    """Ours to mend: the detail goes to the log, never to the client."""
    log.error("%s %s failed", clip(request.method), clip(request.url.path), exc_info=error)
    return refuse(request, InferaError("Something went wrong inside the router; its log has the details."))
