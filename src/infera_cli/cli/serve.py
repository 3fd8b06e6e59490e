"""`infera serve`: the address in front of the engines."""

from __future__ import annotations

import os
import signal
from typing import Any

from infera_cli.cli.console import console
from infera_cli.cli.groups import PlainCommand, verb
from infera_cli.cli.options import settings_of
from infera_cli.config.serve import load_serve
from infera_cli.config.settings import ServeSettings

app = verb()


def _nothing_yet(*_signal: object) -> None:
    """Before the server runs there is nothing to read again, which is no reason to die."""


WARNED = {
    "admin_token": "--admin-token-file or INFERA_ADMIN_TOKEN",
    "api_key": "--api-key-file or INFERA_API_KEY",
    "etcd_password": "--etcd-password-file or INFERA_ETCD_PASSWORD",
}


@app.command(cls=PlainCommand)
@settings_of(ServeSettings, later=True)
def serve(typed: dict[str, Any]) -> int:
    """Serve one OpenAI- and Anthropic-compatible address in front of engines that run, or that it launches.

    \b
    infera serve --worker http://10.0.0.1:8001 --worker http://10.0.0.2:8001
    infera serve --replicas replicas.json --port 8000
    infera serve --sim 3
    infera serve --etcd-endpoint 10.0.0.5:2379

    Each setting comes from its flag, else its variable, else [serve] in ./infera.toml, else [serve] in the
    user's config.toml. SIGHUP reads the replica file again, SIGTERM and Ctrl-C stop in order.
    """
    signal.signal(signal.SIGHUP, _nothing_yet)
    loaded = load_serve(typed, os.environ)
    for name, better in WARNED.items():
        if loaded.origins[name].layer == "flag":
            console.warn(f"--{name.replace('_', '-')} is visible in the process list; use {better}")
    from infera_cli import wiring

    return wiring.run(loaded.settings, console.data)
