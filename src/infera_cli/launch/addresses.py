"""The address by which other machines reach this one (S20, S28).

The kernel is asked which of our addresses it would use towards the registry, since routers are where that is; the
bridge of a container network is no answer.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterator
from urllib.parse import urlsplit

UNSPECIFIED = frozenset({"", "0.0.0.0", "::", "[::]", "*"})
_VIRTUAL = (
    "docker", "br-", "cni", "flannel", "cali", "veth", "virbr", "vxlan", "cilium", "podman", "lxc", "weave", "tun",
)  # fmt: skip
_GET_ADDRESS = 0x8915  # SIOCGIFADDR


def advertised(bind_host: str | None, towards: str) -> str:
    """What to tell others: the address that is bound, if it is one; else ours on the way to the URL `towards`."""
    if bind_host is not None and bind_host not in UNSPECIFIED:
        return bind_host
    ours = _towards(urlsplit(towards).hostname or "127.0.0.1")
    interfaces = list(_interfaces())
    if ours in {address for name, address in interfaces if name.startswith(_VIRTUAL)}:
        real = [a for name, a in interfaces if not name.startswith(_VIRTUAL) and not a.startswith("127.")]
        return real[0] if real else ours
    return ours


def is_local(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    return host in UNSPECIFIED or host in ("localhost", "::1") or host.startswith("127.")


def _towards(host: str) -> str:
    try:
        [(family, _, _, _, target), *_] = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # sends nothing
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return "127.0.0.1"


def _interfaces() -> Iterator[tuple[str, str]]:
    """(name, IPv4 address) of every interface that has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            asked = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _GET_ADDRESS, asked)
            except OSError:
                continue
            yield name, socket.inet_ntoa(answer[20:24])
