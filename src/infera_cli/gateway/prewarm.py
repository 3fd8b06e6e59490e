"""Tells the cache daemon on this machine which blocks will be wanted (infera-wire §3.4)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from infera_cli.errors import NoRoutableWorker
from infera_cli.protocol import kvd

SECONDS = 5.0
"""For connecting, greeting and sending together."""


class CacheDaemon:
    """The daemon at the Unix socket `path`."""

    def __init__(self, path: str, *, seconds: float = SECONDS) -> None:
        self._path = path
        self._seconds = seconds

    async def __call__(self, keys: Sequence[bytes], model: str, compat_key: str, deadline_ms: int) -> None:
        """Hand over the hint; that it was read is not known. Raises NoRoutableWorker when it cannot be sent."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._tell(kvd.prefetch_hint(keys, model, compat_key, deadline_ms))
        except TimeoutError:
            raise self._failed("no answer in time") from None
        except (OSError, EOFError, ValueError) as error:
            raise self._failed(str(error) or type(error).__name__) from error

    async def _tell(self, hint: bytes) -> None:
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            writer.write(kvd.hello())
            await writer.drain()
            length = kvd.length_of(await reader.readexactly(kvd.HEADER_BYTES))
            kvd.check_hello_ack(await reader.readexactly(length))
            writer.write(hint)
            await writer.drain()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _failed(self, why: str) -> NoRoutableWorker:
        return NoRoutableWorker(f"The cache daemon could not be told (--kvd-socket-path): {why[:100]}.")
