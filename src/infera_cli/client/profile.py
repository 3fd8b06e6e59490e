"""The torch profiler of workers: through a running server, or straight at the engines (infera-wire §3.5)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal
from urllib.parse import urlencode

from infera_cli.client.http import Server
from infera_cli.client.workers import array
from infera_cli.errors import ServerUnreachable

Action = Literal["start", "stop"]
SECONDS: dict[Action, float] = {"start": 40.0, "stop": 620.0}
"""A little longer than the server waits for its workers."""
_AT_ONCE = 16
_DETAIL = 500

_PLACES = {
    "sglang": "SGLANG_TORCH_PROFILER_DIR of the engine, else its /tmp",
    "vllm": "torch_profiler_dir of the engine's --profiler-config",
}


def through(
    server: Server, action: Action, selectors: Mapping[str, str | None], body: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """One result a worker that `selectors` (worker_id, model, role) leave. Raises NotFound, Unauthorized and others."""
    chosen = {name: value for name, value in selectors.items() if value is not None}
    query = "?" + urlencode(chosen) if chosen else ""
    return array(server, server.post(f"/v1/admin/profile/{action}{query}", dict(body)), "results")


def straight(engines: Sequence[Server], action: Action, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The same results, from the engines themselves, all at once; one that cannot be reached is a result too."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda engine: _one(engine, action, body), engines))


def _one(engine: Server, action: Action, body: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {"worker_id": engine.url, "url": engine.url, "engine": "", "status_code": None}
    try:
        answer = engine.send("POST", f"/{action}_profile", json.dumps(dict(body)).encode())
    except ServerUnreachable as fault:
        return {**result, "ok": False, "detail": fault.message}
    said = answer.body[:_DETAIL].decode("utf-8", "replace")
    return {**result, "status_code": answer.status, "ok": answer.status < 400, "detail": said}


def place_of(result: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    """Where a person finds the traces of a worker, as far as this program can know."""
    engine = str(result.get("engine") or "")
    if engine == "sglang" and body.get("output_dir"):
        return str(body["output_dir"])
    return _PLACES.get(engine, _PLACES["vllm"])
