"""Where a request would go, and why; nothing is sent to a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infera_cli.client.http import Server
from infera_cli.errors import ServerUnreachable


def explain(server: Server, *, path: str, headers: Mapping[str, str], body: str) -> dict[str, Any]:
    """The server's decision for this request, with its reasons; `body` is text. Raises InferaErrors."""
    answer = server.post("/v1/admin/explain", {"path": path, "headers": dict(headers), "body": body})
    if not isinstance(answer, dict) or "worker" not in answer:
        raise ServerUnreachable(f"{server.url} answers, but not as an infera server does")
    return answer
