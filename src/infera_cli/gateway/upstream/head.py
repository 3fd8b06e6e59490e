"""The head of a request as a worker gets it."""

from __future__ import annotations

from typing import Final

from infera_cli.protocol.headers import CREDENTIALS, RequestHead
from infera_cli.routing.types import WorkerSpec

_RANK: Final = frozenset({b"x-data-parallel-rank"})


class Heads:
    """Writes the heads of requests to one worker; what is the same in all of them is worked out once."""

    __slots__ = ("_host", "_key", "_opening")

    def __init__(self, spec: WorkerSpec) -> None:
        self._opening = b"POST " + spec.path_prefix.encode()
        self._host = b" HTTP/1.1\r\nhost: %b\r\n" % spec.authority.encode()
        self._key = None if spec.api_key is None else b"authorization: Bearer %b\r\n" % spec.api_key.encode()

    def write(
        self, head: RequestHead, strip: frozenset[bytes], target: bytes, length: int, name: str,
        rank: int | None = None,
    ) -> bytes:  # fmt: skip
        """`head` less the fields in `strip`, with the worker's own key in place of the client's where it has one, and
        with the request's `name`. `target` is path and query; `rank` the one behind the worker's address
        (infera-wire §4.3)."""
        passed = head.passed_on
        if rank is not None:
            strip |= _RANK
        if strip or self._key is not None:
            passed = head.without(strip if self._key is None else strip | CREDENTIALS)
            if self._key is not None:
                passed += self._key
        if rank is not None:
            passed += b"x-data-parallel-rank: %d\r\n" % rank
        return b"%b%b%b%bcontent-length: %d\r\nx-request-id: %b\r\n\r\n" % (
            self._opening, target, self._host, passed, length, name.encode(),
        )  # fmt: skip
