"""How connections to workers are made: time limit, TLS, and nothing from the environment (B17)."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

from infera_cli.gateway.tls import Stamp, stamp
from infera_cli.gateway.upstream.http import Connection, Pool
from infera_cli.routing.types import WorkerSpec

_log = logging.getLogger("infera.tls")


class Dialer:
    """Connects within `timeout` seconds, TLS handshake included; one TLS context a certificate authority.

    A file of certificates that changed is read again for the next connection; where it cannot be used, what it held
    before stays in use, and the log says so.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._tls: dict[str | None, tuple[Stamp | None, ssl.SSLContext]] = {}

    async def __call__(self, pool: Pool) -> Connection:
        """A fresh connection to the pool's worker. Raises OSError (also for TLS failures) or TimeoutError."""
        async with asyncio.timeout(self.timeout):
            return await self.connect(pool)

    async def connect(self, pool: Pool) -> Connection:
        """The same without a limit of its own."""
        spec = pool.spec
        context = self._context(spec)
        made: list[Connection] = []

        def connection() -> Connection:
            made.append(Connection(pool))
            return made[-1]

        try:
            await asyncio.get_running_loop().create_connection(
                connection,
                spec.address or spec.host,
                spec.port,
                ssl=context,
                server_hostname=spec.host if context else None,
            )
        except BaseException:  # also where it stood already, and nobody waits for it any more
            for unwanted in made:
                unwanted.dismiss()
            raise
        return made[-1]

    def _context(self, spec: WorkerSpec) -> ssl.SSLContext | None:
        if spec.scheme == "http":
            return None
        seen = stamp(Path(spec.ca_file)) if spec.ca_file is not None else None
        known = self._tls.get(spec.ca_file)
        if known is not None and known[0] == seen:
            return known[1]
        try:
            context = ssl.create_default_context(cafile=spec.ca_file)
        except OSError as error:
            if known is None:
                raise
            _log.error("ca_file %s: %s; the previous certificates stay in use.", spec.ca_file, error)
            context = known[1]
        self._tls[spec.ca_file] = seen, context
        return context
