"""Hosts and path prefixes as people write them, checked and brought to one form.

Shared by the replica file (replica-router §1.2) and `--worker URL`.
"""

from __future__ import annotations

import ipaddress
import re

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?\Z")
_PREFIX = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]*\Z")
_HERE = "127.0.0.1"


def bare_host(text: str) -> str:
    """`text` as a host to dial: a name, an IPv4 or an IPv6 address; IPv6 loses its brackets (B19).

    Raises ValueError with half a sentence that says what is wrong.
    """
    if not text:
        raise ValueError("is empty")
    if "://" in text:
        raise ValueError("has a scheme in it; write the bare name or address")
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if ":" in inner:
        return _ipv6(inner)
    if inner != text or len(text) > 253 or not _NAME.match(text):
        raise ValueError("is neither a host name nor an address")
    return text


def _ipv6(text: str) -> str:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        raise ValueError("is not an IPv6 address; a port goes into its own field") from None
    return text


def path_prefix(text: str) -> str:
    """`text` as the path in front of every route, without a slash at its end; "" and "/" mean none.

    Raises ValueError with half a sentence that says what is wrong.
    """
    if text and not text.startswith("/"):
        raise ValueError('does not begin with "/"')
    if not _PREFIX.match(text):
        raise ValueError("holds characters that a URL path cannot (no query, no fragment, no spaces)")
    prefix = text.rstrip("/")
    if prefix.endswith("/v1"):
        raise ValueError("ends in /v1, which every route brings itself; leave it out")
    return prefix


def one_spelling(host: str) -> str:
    """`host` in the spelling that all names of one listener share: case, a dot at the end, localhost, IPv6 zeros."""
    lowered = host.lower().rstrip(".")
    if lowered == "localhost":
        return _HERE
    return str(ipaddress.IPv6Address(lowered)) if ":" in lowered else lowered


def dial_key(host: str) -> str:
    """What two spellings of one machine have in common: case, and the names of this machine."""
    lowered = host.lower().rstrip(".")
    if lowered in {"localhost", "::1", "0.0.0.0", "::"}:
        return _HERE
    return _HERE if lowered.startswith("127.") else lowered
