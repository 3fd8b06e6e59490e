"""`python -m infera_cli.simengine`: bind, load, listen, say so, serve until SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

import uvloop

from infera_cli.simengine.app import App
from infera_cli.simengine.http import Connection, Server
from infera_cli.simengine.options import Options, parse


class Process:
    """One engine with its listening socket."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._app = App(options)
        self._server = Server(self._app, idle=options.keep_alive)
        self._listener: asyncio.Server | None = None
        self._port = options.port
        self._stopped = asyncio.Event()
        self._app.on_refuse = self._refuse
        self._app.stats = self._server.stats

    async def run(self) -> None:
        """Serve until told to stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopped.set)
        if self._options.exit_with_parent:
            loop.add_reader(sys.stdin.fileno(), self._watch_parent)
        # The port is taken now, but listens only when the model is loaded (engines §1.1).
        bound = _bind(self._options.host, self._options.port)
        self._port = bound.getsockname()[1]
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), self._options.load_seconds or 1e-9)
        if self._stopped.is_set():
            return
        await self._listen(bound)
        self._announce()
        await self._stopped.wait()
        await self._stop()

    async def _listen(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Connection(self._server), sock=bound, backlog=2048)

    def _announce(self) -> None:
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        with suppress(OSError):
            sys.stdout.write(f"listening on http://{host}:{self._port}\n")
            sys.stdout.flush()
        if self._options.ready_file:
            part = Path(self._options.ready_file + ".part")
            part.write_text(f"{self._port}\n")
            part.replace(self._options.ready_file)                # never seen half written
        if self._options.announce_fd is not None:
            os.write(self._options.announce_fd, f"{self._port}\n".encode())

    def _watch_parent(self) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._stopped.set()

    def _refuse(self, seconds: float) -> None:
        """A fault: nobody can connect for a while, and whoever is connected is cut off."""
        if self._listener is not None:
            self._listener.close()
            loop = asyncio.get_running_loop()
            loop.call_later(0.04, self._server.close_all)         # after the answer to who asked for it
            loop.call_later(seconds, self._relisten)

    def _relisten(self) -> None:
        if not self._stopped.is_set():
            self._task = asyncio.ensure_future(self._listen(_bind(self._options.host, self._port)))

    async def _stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._app.stop()
        self._server.close_all()
        await asyncio.sleep(0.01)                                 # what was written last leaves


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((host, port))
    return bound


async def _main(options: Options) -> None:
    await Process(options).run()


def main() -> int:
    """Run one engine; 1 when its port is taken."""
    options = parse()
    try:
        uvloop.run(_main(options))
    except OSError as wrong:
        sys.stderr.write(f"cannot listen on {options.host}:{options.port}: {wrong.strerror}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
