"""Misbehaviour on demand: what an engine can do wrong, as one short text (engines §8).

A fault is a comma-separated list, given per request in the header `x-sim-fault` or the body member `sim_fault`, or for
all requests with `POST /sim/faults`. For example `delay=0.5,cut-after=3`, or `status=503,shape=flat`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Shape = Literal["vllm", "flat", "detail"]
_ENDINGS = ("stall-after", "cut-after", "close-after", "error-after", "abort-after")
_SHAPES: tuple[Shape, ...] = ("vllm", "flat", "detail")
TYPES = {400: "BadRequestError", 401: "Unauthorized", 404: "NotFoundError", 429: "RateLimitError",
         500: "InternalServerError", 503: "ServiceUnavailableError"}
"""The `type` of an error by its status (engines §1.10)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with a request. The default is nothing.

    `before` happens instead of an answer: `stall` (silence), `reset`, `close`, `garbage` (not HTTP). `ending` comes
    after `after` pieces of text: `stall`, `cut` (half a line, then a reset), `close` (an early end of the connection),
    `error` (in-band, then [DONE]), `abort` (finish_reason under 200). `delay` is in seconds, before the headers.
    """

    status: int = 0
    shape: Shape = "vllm"
    retry_after: str = ""
    before: str = ""
    delay: float = 0.0
    ending: str = ""
    after: int = 0
    comments: bool = False


NONE = Fault()


def parse(text: str) -> Fault:
    """The fault that `text` names. Raises ValueError with a sentence."""
    members: dict[str, Any] = {}
    for item in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = item.partition("=")
        members |= _member(name, value)
    return Fault(**members)


def _member(name: str, value: str) -> dict[str, Any]:
    if name in {"stall", "reset", "close", "garbage"}:
        return {"before": name}
    if name == "comments":
        return {"comments": True}
    if name in _ENDINGS:
        return {"ending": name.removesuffix("-after"), "after": int(value or 0)}
    if name == "abort":
        return {"ending": "abort", "after": int(value or 1)}
    if name == "delay":
        return {"delay": float(value)}
    if name == "status":
        return {"status": int(value)}
    if name == "retry-after":
        return {"retry_after": value}
    if name == "shape" and value in _SHAPES:
        return {"shape": value}
    raise ValueError(f"unknown fault {name!r}")


def error_body(status: int, message: str, shape: str = "vllm", *, kind: str | None = None,
               param: str | None = None) -> dict[str, Any]:
    """An error as vLLM says it, flat as SGLang does, as FastAPI's `detail`, or as `messages` for Anthropic's routes."""
    kind = kind or TYPES.get(status, "InternalServerError")
    if shape == "detail":
        return {"detail": message}
    if shape == "flat":
        return {"object": "error", "message": message, "type": kind, "param": param, "code": status}
    if shape == "messages":
        return {"type": "error", "error": {"type": kind, "message": message}}
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}
