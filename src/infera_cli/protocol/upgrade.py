"""Requests that offer to change to another protocol, and are read as if they had not (RFC 9110 §7.8).

Java's HTTP client, and curl with `--http2`, offer HTTP/2 with every first request of a connection, bodies included;
a server that does not change just answers. The parser would take what follows such a head for the other protocol.
"""

from __future__ import annotations

from infera_cli.protocol.headers import Headers


def without_offer(method: bytes, target: bytes, version: str, headers: Headers, length: bytes | None) -> bytes:
    """The head on the wire less its offer; `length` is the Content-Length, which `headers` does not have."""
    said = [method + b" " + target + b" HTTP/" + version.encode()]
    for name, value in headers:
        kept = _other_tokens(value) if name == b"connection" else value
        if name != b"upgrade" and (kept or name != b"connection"):
            said.append(name + b": " + kept)
    if length is not None:
        said.append(b"content-length: " + length)
    return b"\r\n".join(said) + b"\r\n\r\n"


def _other_tokens(connection: bytes) -> bytes:
    return b", ".join([token.strip() for token in connection.split(b",") if token.strip().lower() != b"upgrade"])
