"""What happened to the last requests of a running server."""

from __future__ import annotations

from typing import Any

from infera_cli.client.http import Server
from infera_cli.client.workers import array


def requests(
    server: Server, *, slow: float | None = None, worker: str | None = None, session: str | None = None,
    status: str | None = None, limit: int | None = None,
) -> list[dict[str, Any]]:
    """The last requests, newest first; `slow` keeps those of at least so many seconds.

    Raises ServerUnreachable, Unauthorized.
    """
    document = server.get(
        "/v1/admin/requests", slow=slow, worker=worker, session=session, status=status, limit=limit)
    return array(server, document, "requests")
