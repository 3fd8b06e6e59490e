"""Request bodies of the control plane."""

from __future__ import annotations

from fastapi import Request
from starlette.requests import ClientDisconnect

from infera_cli.errors import BodyTooLarge, RequestError


async def read_body(request: Request, limit: int) -> bytes:
    """All of it, at most `limit` bytes. Raises BodyTooLarge, and RequestError when the client left in the middle."""
    if int(request.headers.get("content-length", 0)) > limit:
        raise _too_large(limit)
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            pieces.append(piece)
    except ClientDisconnect:
        raise RequestError("The body did not arrive whole.") from None
    return b"".join(pieces)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {limit} bytes.")
