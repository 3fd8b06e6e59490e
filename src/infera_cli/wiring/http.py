"""uvicorn as this server uses it: our protocol class, our sockets, our signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from ssl import SSLContext

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from infera_cli.gateway.breaking import reset
from infera_cli.gateway.connection import ClientConnection, bound_to
from infera_cli.gateway.gate import Gate
from infera_cli.gateway.listen import BACKLOG

_LOOK = 0.05    # seconds between two looks at whether the last request is over
_GOODBYE = 0.5  # seconds that a client has for taking what was written last, and over TLS for its own goodbye
_log = logging.getLogger("infera.gateway")


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers, and with an end of its own: an orderly stop is exit code 0 here."""

    def __init__(self, config: uvicorn.Config, gate: Gate, shutdown_timeout: float) -> None:
        super().__init__(config)
        self._gate = gate
        self._limit = shutdown_timeout

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let open requests end; those that do not in time, or that a second signal meets, are broken off visibly.

        Nobody is waited for who has nothing to come any more: over TLS even a client that never says goodbye.
        """
        until = asyncio.get_running_loop().time() + self._limit
        self._gate.close()
        if self._gate.inside:
            _log.info("Shutting down; %d open requests may end first", len(self._gate.inside))
        # still listening: who asks /readyz is told, and a new request gets its 503
        await self._while(lambda: bool(self._gate.inside), until)
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        for connection in self._connections:
            connection.shutdown()
        await self._while(lambda: any(connection.is_busy for connection in self._connections), until)
        self._cut_off()
        await asyncio.sleep(0)  # what was written leaves in this turn of the loop
        await self._while(lambda: bool(self._connections), asyncio.get_running_loop().time() + _GOODBYE)
        await self._abort()

    @property
    def _connections(self) -> list[ClientConnection]:
        return [connection for connection in self.server_state.connections if isinstance(connection, ClientConnection)]

    async def _while(self, condition: Callable[[], bool], until: float) -> None:
        """Wait until that is over, until that time of the loop has come, or until a second signal."""
        loop = asyncio.get_running_loop()
        while condition() and loop.time() < until and not self.force_exit:  # noqa: ASYNC110 - it is no hurry
            await asyncio.sleep(_LOOK)

    async def _abort(self) -> None:
        """End what is left of connections, and of the control plane's work for them."""
        for connection in self._connections:
            if connection.broke:
                reset(connection.transport)
            else:
                connection.transport.abort()
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cut_off(self) -> None:
        count = self._gate.cut_off() + sum([connection.cut_off() for connection in self._connections])
        if count:
            _log.warning("%d open requests were broken off (--shutdown-timeout %g)", count, self._limit)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


def http_server(app: FastAPI, gate: Gate, *, tls: SSLContext | None, shutdown_timeout: float) -> HttpServer:
    """A server that takes relayed routes by `gate` and gives all else to `app`."""
    config = uvicorn.Config(
        _quiet_when_cancelled(app),
        http=bound_to(gate),
        ws="none",
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
    )
    config.load()
    config.ssl = tls
    return HttpServer(config, gate, shutdown_timeout)


def _quiet_when_cancelled(app: ASGIApp) -> ASGIApp:
    """`app`, whose work may be cut short by the end of the server, which is no fault to be logged."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await app(scope, receive, send)

    return run
