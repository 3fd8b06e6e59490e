"""Whether a worker's address is that of this very router: its requests would go round until every place is taken."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from infera_cli.config.settings import ServeSettings
from infera_cli.errors import ConfigError
from infera_cli.routing.types import WorkerSpec

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_LOOPBACK = {4: ipaddress.ip_address("127.0.0.1"), 6: ipaddress.ip_address("::1")}
_ANY_PORT = 9  # nothing is sent there


class Ourselves:
    """Where this router listens, as far as that is known without asking a name server; port 0 is not known yet."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    def are_at(self, host: str, port: int) -> bool:
        """Whether a connection to that address ends here."""
        if port != self._port or not port:
            return False
        if host.lower() == self._host.lower():
            return True
        bound, theirs = _addresses(self._host or "0.0.0.0"), _addresses(host)
        if any(address.is_unspecified for address in bound):
            families = {address.version for address in bound}
            named = host.lower() == socket.gethostname().lower()
            return named or any(one.version in families and _is_of_this_machine(one) for one in theirs)
        return any(_dialled(one) in bound for one in theirs)

    def check(self, spec: WorkerSpec, where: str) -> None:
        """Raise ConfigError where `spec`, which stands at `where`, would lead back here."""
        if self.are_at(spec.address or spec.host, spec.port):
            raise ConfigError(
                f"{where}: {spec.url} is this router itself; give the address of an engine, or change --port"
            )

    def check_all(self, specs: Iterable[WorkerSpec], where: str) -> None:
        """Raise ConfigError where one of `specs` would lead back here."""
        for spec in specs:
            self.check(spec, where)


def ourselves(settings: ServeSettings, url: str = "") -> Ourselves:
    """The router of these settings; `url` is where it answers, once it does."""
    return Ourselves(settings.host, (urlsplit(url).port if url else None) or settings.port)


def _addresses(host: str) -> tuple[_Address, ...]:
    """What a host is known to stand for; nothing for a name that only a name server knows."""
    name = host.lower().rstrip(".")
    if name == "localhost":
        return tuple(_LOOPBACK.values())
    try:
        found = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return ()
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found,)


def _dialled(address: _Address) -> _Address:
    """The unspecified address, dialled, is the loopback."""
    return _LOOPBACK[address.version] if address.is_unspecified else address


def _is_of_this_machine(address: _Address) -> bool:
    """Whether the kernel would answer itself: it then speaks from the very address it speaks to."""
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), _ANY_PORT))
            return bool(ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]) == address)
    except (OSError, ValueError):
        return False
