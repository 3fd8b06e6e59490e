"""The listening sockets: bound before anything else starts (replica-router §1.13; B7, R188)."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass

from infera_cli.errors import AddressInUse, ConfigError

BACKLOG = 2048


@dataclass(frozen=True, slots=True)
class Listener:
    """Bound sockets of one host and port: one an address family."""

    sockets: tuple[socket.socket, ...]
    host: str
    port: int

    def url(self, scheme: str) -> str:
        """Where a person on this machine finds it."""
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.host, self.host)
        return f"{scheme}://[{shown}]:{self.port}" if ":" in shown else f"{scheme}://{shown}:{self.port}"

    def close(self) -> None:
        """Give the port back."""
        for one in self.sockets:
            one.close()


def bind(host: str, port: int) -> Listener:
    """Listen on every address that `host` stands for; port 0 takes a free one, the same for all.

    Raises ConfigError (the host cannot be resolved) and AddressInUse.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(f"--host {host!r} cannot be resolved: {error.strerror or error}.") from None
    with contextlib.ExitStack() as undo:
        sockets: list[socket.socket] = []
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            chosen = sockets[0].getsockname()[1] if sockets else port
            one = undo.enter_context(contextlib.closing(_bound(family, (address[0], chosen, *address[2:]), host)))
            sockets.append(one)
        undo.pop_all()
    return Listener(tuple(sockets), host, sockets[0].getsockname()[1])


def _bound(family: int, address: tuple[object, ...], host: str) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
        one.listen(BACKLOG)
    except OSError as error:
        one.close()
        where = f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"
        raise AddressInUse(
            f"Cannot listen on {where}: {os.strerror(error.errno or 0)}; choose another --port or --host."
        ) from None
    one.setblocking(False)
    return one
