"""uvicorn as this server uses it: our protocol class, our sockets, our signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
from collections.abc import Iterator
from ssl import SSLContext

import uvicorn
from fastapi import FastAPI

from infera_cli.gateway.connection import bound_to
from infera_cli.gateway.gate import Gate
from infera_cli.gateway.listen import BACKLOG

_LOOK = 0.05  # seconds between two looks at whether the last request is over
_log = logging.getLogger("infera.gateway")


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: an orderly stop is exit code 0 here."""

    def __init__(self, config: uvicorn.Config, gate: Gate, shutdown_timeout: float) -> None:
        super().__init__(config)
        self._gate = gate
        self._limit = shutdown_timeout

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let open requests end; those that do not in time, or that a second signal meets, are broken off visibly."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._limit
        self._gate.close()
        if self._gate.inside:
            _log.info("Shutting down; %d open requests may end first", len(self._gate.inside))
        while self._gate.inside and loop.time() < until and not self.force_exit:  # noqa: ASYNC110 - it is no hurry
            await asyncio.sleep(_LOOK)  # still listening: who asks /readyz is told, and a new request gets its 503
        timer = loop.call_later(max(0.0, until - loop.time()), self._cut_off)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()
        self._cut_off()
        await asyncio.sleep(0)  # what was written leaves in this turn of the loop

    def _cut_off(self) -> None:
        count = self._gate.cut_off()
        if count:
            _log.warning("%d open requests were broken off (--shutdown-timeout %g)", count, self._limit)

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
        timeout_graceful_shutdown=math.ceil(shutdown_timeout) + 1,  # for the control plane: relays are cut by then
    )
    config.load()
    config.ssl = tls
    return HttpServer(config, gate, shutdown_timeout)
