"""Conversations of a running server that lost their place in the cache."""

from __future__ import annotations

from typing import Any

from infera_cli.client.http import Server
from infera_cli.client.workers import array


def sessions(server: Server) -> list[dict[str, Any]]:
    """Sessions whose prefix stopped matching, the last one first. Raises InferaErrors."""
    return array(server, server.get("/v1/admin/sessions"), "sessions")
