"""How a command reaches the running server: the client settings, and the connection made from them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infera_cli.cli.console import console
from infera_cli.config import secrets
from infera_cli.config.layers import load
from infera_cli.config.settings import ClientSettings

if TYPE_CHECKING:
    from infera_cli.client.http import Server


def server(typed: Mapping[str, Any]) -> Server:
    """The server that was meant. Raises UsageError, ConfigError."""
    from infera_cli.client.http import Server

    loaded = load(ClientSettings, typed, os.environ, section="client")
    settings = loaded.settings
    if loaded.origins["admin_token"].layer == "flag":
        console.warn("--admin-token is visible in the process list; "
                     "use --admin-token-file or INFERA_ADMIN_TOKEN")
    token = secrets.one(settings.admin_token, settings.admin_token_file, "admin token")
    return Server(settings.server, token=token, timeout=settings.timeout)


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
