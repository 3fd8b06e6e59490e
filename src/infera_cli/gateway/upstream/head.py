"""The head of a request as a worker gets it."""

from __future__ import annotations

from infera_cli.protocol.headers import CREDENTIALS, RequestHead
from infera_cli.routing.types import WorkerSpec

_RANK = frozenset({b"x-data-parallel-rank"})


def request_head(
    head: RequestHead, spec: WorkerSpec, strip: frozenset[bytes], target: bytes, length: int, name: str,
    rank: int | None = None,
) -> bytes:  # fmt: skip
    """`head` less the fields in `strip`, with the worker's own key in place of the client's where it has one, and with
    the request's `name`. `target` is path and query; `rank` the one behind the worker's address (infera-wire §4.3)."""
    passed = head.passed_on
    if rank is not None:
        strip |= _RANK
    if strip or spec.api_key is not None:
        replaced = strip if spec.api_key is None else strip | CREDENTIALS
        passed = head.without(replaced)
        if spec.api_key is not None:
            passed += b"authorization: Bearer %b\r\n" % spec.api_key.encode()
    if rank is not None:
        passed += b"x-data-parallel-rank: %d\r\n" % rank
    return b"POST %b%b HTTP/1.1\r\nhost: %b\r\n%bcontent-length: %d\r\nx-request-id: %b\r\n\r\n" % (
        spec.path_prefix.encode(), target, spec.authority.encode(), passed, length, name.encode(),
    )  # fmt: skip
