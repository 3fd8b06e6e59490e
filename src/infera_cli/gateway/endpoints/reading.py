"""Request bodies of the control plane."""

from __future__ import annotations

from fastapi import Request

from infera_cli.errors import BodyTooLarge


async def read_body(request: Request, limit: int) -> bytes:
    """All of it, at most `limit` bytes. Raises BodyTooLarge."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise BodyTooLarge(f"The body is larger than {limit} bytes.")
        pieces.append(piece)
    return b"".join(pieces)
