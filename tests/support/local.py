"""The real server in the test's own process and event loop: starts in milliseconds, same code, no log to read."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from infera_cli.config.serve import load_serve
from infera_cli.wiring.http import HttpServer
from infera_cli.wiring.server import Server
from infera_cli.wiring.sources import Into
from tests.support.server import Entries, Running
from tests.support.stub import StubWorker


class Captured(Server):
    """A server that leaves the signals of the test run alone."""

    http: HttpServer
    into: Into

    def _install_signals(self, server: HttpServer, into: Into) -> None:
        self.http, self.into = server, into


class LocalServer(Running):
    """`infera serve` with these flags, in this loop; used like `ServerProcess`."""

    def __init__(self, workers: Sequence[StubWorker], folder: Path, *flags: str,
                 env: Mapping[str, str] | None = None, entries: Entries | None = None) -> None:
        self.file = folder / "replicas.json"
        self.write(workers, entries)
        typed = {"replicas": str(self.file), "host": "127.0.0.1", "port": "0", **_typed(flags)}
        self._server = Captured(load_serve(typed, env or {}).settings)
        self.url = self._server.url
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        ready = asyncio.Event()
        self._task = asyncio.create_task(self._server.serve(lambda _line: None, ready.set))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait([self._task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            self._task.result()
        while not self._server.http.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    async def reload(self) -> None:
        """What SIGHUP does."""
        self._server.reload(self._server.into)

    def lose(self, name: str) -> None:
        """The registration of a worker is revoked, as when its lease ends."""
        member = self._server.registry.member(name)
        assert member is not None
        self._server.registry.remove(name)
        self._server.gate.worker_left(member.worker)

    async def stop(self) -> None:
        """End at once, open requests included."""
        assert self._task is not None
        self._server.http.should_exit = self._server.http.force_exit = True
        await self._task
        for connection in list(self._server.gate.connections):
            connection.transport.abort()  # type: ignore[attr-defined]
        self._server.close()
        for pool in self._server.upstream.pools:
            pool.close()
        await asyncio.sleep(0.01)
        gc.unfreeze()


def _typed(flags: Sequence[str]) -> dict[str, str]:
    """`--a-b 1` as a command line gives it to the settings; a flag without a value is a switch."""
    typed: dict[str, str] = {}
    for at, flag in enumerate(flags):
        if flag.startswith("--"):
            value = flags[at + 1] if at + 1 < len(flags) and not flags[at + 1].startswith("--") else "true"
            typed[flag[2:].replace("-", "_")] = value
    return typed
