"""uvicorn as this server uses it: our protocol class, our sockets, our signals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from ssl import SSLContext

import uvicorn
from fastapi import FastAPI

from infera_cli.gateway.connection import bound_to
from infera_cli.gateway.gate import Gate
from infera_cli.gateway.listen import BACKLOG


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: an orderly stop is exit code 0 here."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def http_server(app: FastAPI, gate: Gate, *, tls: SSLContext | None, shutdown_timeout: float) -> HttpServer:
    """A server that takes relayed routes by `gate` and gives all else to `app`."""
    config = uvicorn.Config(
        app,
        http=bound_to(gate),
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=max(1, round(shutdown_timeout)),
    )
    config.load()
    config.ssl = tls
    return HttpServer(config)
