"""Misbehaviour on demand: what an engine can do wrong, as one short text (engines §8).

A fault is a comma-separated list, given per request in the header `x-sim-fault` or the body member
`sim_fault`, or for all requests with `POST /sim/faults`. For example `delay=0.5,cut-after=3`, or
`status=503,shape=flat`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

_SHAPES = ("vllm", "flat", "detail")
TYPES = {400: "BadRequestError", 401: "Unauthorized", 404: "NotFoundError", 429: "RateLimitError",
         500: "InternalServerError", 503: "ServiceUnavailableError"}
"""The `type` of an error by its status (engines §1.10)."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with a request. The default is nothing.

    `before` happens instead of an answer: `stall` (silence), `reset`, `close`, `garbage` (not HTTP).
    `ending` comes after `after` pieces of text: `stall`, `cut` (half a line, then a reset), `close` (an
    early end of the connection), `error` (in-band, then [DONE]), `abort` (finish_reason under 200). `delay`
    is in seconds, before the headers.
    """

    status: int = 0
    shape: str = "vllm"
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
        if name not in _MEMBERS:
            raise ValueError(f"unknown fault {name!r}")
        members |= _MEMBERS[name](value)
    return Fault(**members)


def _shape(name: str) -> str:
    if name not in _SHAPES:
        raise ValueError(f"unknown fault shape {name!r}")
    return name


def _before(name: str, _: str) -> dict[str, Any]:
    return {"before": name}


def _ending(name: str, value: str) -> dict[str, Any]:
    return {"ending": name, "after": int(value or 0)}


_MEMBERS: dict[str, Callable[[str], dict[str, Any]]] = {
    **{name: partial(_before, name) for name in ("stall", "reset", "close", "garbage")},
    **{f"{name}-after": partial(_ending, name) for name in ("stall", "cut", "close", "error", "abort")},
    "comments": lambda _: {"comments": True},
    "delay": lambda value: {"delay": float(value)},
    "status": lambda value: {"status": int(value)},
    "retry-after": lambda value: {"retry_after": value},
    "shape": lambda value: {"shape": _shape(value)},
}


def error_body(status: int, message: str, shape: str = "vllm", *, kind: str | None = None,
               param: str | None = None) -> dict[str, Any]:
    """An error as vLLM says it, flat as SGLang does, as FastAPI's `detail`, or as `messages` for
    Anthropic's routes."""
    kind = kind or TYPES.get(status, "InternalServerError")
    if shape == "detail":
        return {"detail": message}
    if shape == "flat":
        return {"object": "error", "message": message, "type": kind, "param": param, "code": status}
    if shape == "messages":
        return {"type": "error", "error": {"type": kind, "message": message}}
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}
