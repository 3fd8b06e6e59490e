"""Reading heads and chunks by hand, strictly: what the stub worker uses instead of an HTTP library."""

from __future__ import annotations

import re
from dataclasses import dataclass

Pair = tuple[str, str]


@dataclass(frozen=True)
class Head:
    """A request head; `pairs` are the headers in order, names as they were spelled."""

    method: str
    target: str
    version: str
    pairs: tuple[Pair, ...]

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def all(self, name: str) -> list[str]:
        """Every value of a header, in order."""
        return [value for key, value in self.pairs if key.lower() == name.lower()]

    @property
    def names(self) -> set[str]:
        return {key.lower() for key, _ in self.pairs}

    @property
    def chunked(self) -> bool:
        return self.all("transfer-encoding") == ["chunked"]

    @property
    def length(self) -> int:
        values = self.all("content-length")
        return int(values[0]) if values else 0


def parse_head(raw: bytes) -> Head:
    """Read a request head without its empty line.

    AssertionError where it is not well formed, or its framing is not exactly one of nothing, one
    Content-Length, or `Transfer-Encoding: chunked`.
    """
    first, *lines = raw.decode("latin-1").split("\r\n")
    method, target, version = first.split(" ")
    pairs = []
    for line in lines:
        name, _, value = line.partition(":")
        assert re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*", line), f"bad header {line!r}"
        pairs.append((name, value.strip(" \t")))
    head = Head(method, target, version, tuple(pairs))
    framing = head.all("content-length") + head.all("transfer-encoding")
    assert len(framing) <= 1, f"ambiguous framing: {framing}"
    assert not head.all("transfer-encoding") or head.chunked, framing
    return head


def dechunk(data: bytes) -> tuple[bytes, int] | None:
    """(body, bytes used) of a complete chunked body at the start of `data`; None while it is incomplete."""
    body, at = bytearray(), 0
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(data[at:end], 16)
        at = end + 2
        if size == 0:
            end = data.find(b"\r\n\r\n", at - 2)
            return None if end < 0 else (bytes(body), end + 4)
        if len(data) < at + size + 2:
            return None
        body += data[at:at + size]
        assert data[at + size:at + size + 2] == b"\r\n", "a chunk does not end with CRLF"
        at += size + 2
