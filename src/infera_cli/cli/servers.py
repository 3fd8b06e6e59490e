"""How a command reaches the running server, from the client settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypedDict

from infera_cli.cli.console import console
from infera_cli.config import secrets
from infera_cli.config.layers import load
from infera_cli.config.settings import ClientSettings


class Target(TypedDict):
    """What `client.http.Server` is made with."""

    url: str
    token: str | None
    timeout: float


def target(typed: Mapping[str, Any]) -> Target:
    """The server that was meant. Raises UsageError, ConfigError."""
    loaded = load(ClientSettings, typed, os.environ, section="client")
    settings = loaded.settings
    if loaded.origins["admin_token"].layer == "flag":
        console.warn("--admin-token is visible in the process list; "
                     "use --admin-token-file or INFERA_ADMIN_TOKEN")
    token = secrets.one(settings.admin_token, settings.admin_token_file, "admin token")
    return {"url": settings.server, "token": token, "timeout": settings.timeout}


def worker_names(ctx: Any) -> list[str]:
    """Names for the shell to offer; empty on any trouble, and never a word about it."""
    import time

    from infera_cli.client.names import complete
    from infera_cli.errors import InferaError

    try:
        loaded = load(ClientSettings, {"server": ctx.params.get("server")}, os.environ, section="client")
        return list(complete(loaded.settings.server, environ=os.environ, now=time.time()))
    except (InferaError, OSError):
        return []
