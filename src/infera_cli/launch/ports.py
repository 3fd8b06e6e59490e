"""Free ports for engines, outside the range that Kubernetes keeps for itself (S25, S26).

A port of the NodePort range can be bound here and is refused from elsewhere, so no such port is ever chosen.
"""

from __future__ import annotations

import errno
import logging
import random
import re
import socket
from collections.abc import Iterable

from infera_cli.errors import AddressInUse, ConfigError

log = logging.getLogger("infera.launch")

NODEPORTS = range(30000, 32768)
_RANGE = re.compile(r"(\d{1,5})\s*-\s*(\d{1,5})", re.ASCII)
_CHOICE: tuple[int, ...] = (*range(10_000, 30_000), *range(61_000, 65_536))
"""Where outgoing connections take none."""


def nodeport_range(text: str | None) -> range:
    """The ports to keep away from: `none` or `off` for no such range; what cannot be read keeps the default, and says
    so unless it is empty (infera-wire §10)."""
    wanted = (text or "").strip()
    if wanted.lower() in ("none", "off"):
        return range(0)
    match = _RANGE.fullmatch(wanted)
    low, high = (int(match[1]), int(match[2])) if match else (0, 0)
    if 0 < low <= high <= 65535:
        return range(low, high + 1)
    if wanted:
        log.warning("the NodePort range %r is not LOW-HIGH; ports 30000-32767 are avoided", wanted)
    return NODEPORTS


def check_port(port: int, named: str) -> int:
    """`port`, if it is one; `named` says where it was written. Raises ConfigError."""
    if not 0 < port <= 65535:
        raise ConfigError(f"{named} {port} is no port; write a number from 1 to 65535")
    return port


def free_ports(
    count: int, *, avoid: range = NODEPORTS, taken: Iterable[int] = (), host: str = "",
    dice: random.Random | None = None,
) -> int:  # fmt: skip
    """The first of `count` ports in a row that can all be bound on `host` now. Raises AddressInUse, ConfigError."""
    dice = dice if dice is not None else random.Random()  # noqa: S311 - two launchers should not try the same ones
    closed: set[int] = {*avoid, *taken}
    for first in dice.sample(_CHOICE, len(_CHOICE)):
        row = range(first, first + count)
        if row[-1] <= 65535 and closed.isdisjoint(row) and all(_is_free(host, port) for port in row):
            return first
    raise AddressInUse(f"there are no {count} free ports in a row outside {avoid.start}-{avoid.stop - 1}")


def check_unused(host: str, port: int) -> None:
    """Raise AddressInUse when something listens there: an engine's answers would be taken for those of our own.

    What cannot be bound for another reason is for the engine to tell."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of a former life do not count
        try:
            probe.bind((host, port))
        except (ValueError, TypeError):  # no host name can be like that
            return
        except OSError as fault:
            if fault.errno == errno.EADDRINUSE:
                raise AddressInUse(
                    f"something else listens on {host or '0.0.0.0'}:{port}; stop it, give the engine another port, or "
                    "register what runs there with --no-engine --url"
                ) from None


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, port))
        except OSError as fault:
            if fault.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise ConfigError(f"nothing can listen on {host[:80]!a} here: {fault.strerror}") from None
        except (ValueError, TypeError):
            raise ConfigError(f"nothing can listen on {host[:80]!a}, which is no host") from None
    return True
