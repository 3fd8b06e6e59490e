"""Serving over TLS: the certificate and its key, read again when the files change, without a restart.

New connections get the new certificate; open ones keep theirs. A pair that cannot be used is refused, the log
says so, and the old one stays.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from infera_cli.errors import ConfigError

WATCH_SECONDS = 2.0

Stamp = tuple[int, int, int]

log = logging.getLogger("infera.tls")


class ServingTls:
    """`context` is what the listening socket uses, for as long as the server lives.

    `key` may be None when the certificate file holds the key as well. Raises ConfigError for a pair that
    cannot be used.
    """

    def __init__(self, certificate: Path, key: Path | None = None, password: str | None = None) -> None:
        self._certificate = certificate
        self._key = key
        self._password = password
        self._seen = self._state()
        self.context = self._built()

    def reload_if_changed(self) -> bool:
        """Load the pair again if one of the files changed; True when a new pair is in use now."""
        state = self._state()
        if state == self._seen:
            return False
        self._seen = state
        try:
            self._built()  # a bad pair must not touch the context that serves
            self._load(self.context)
        except ConfigError as error:
            log.error("%s The previous certificate stays in use.", error.message)  # noqa: TRY400
            return False
        log.info("the certificate %s was read again", self._certificate)
        return True

    async def watch(self, on_reload: Callable[[], None] = lambda: None, every: float = WATCH_SECONDS) -> None:
        """Look at the files every few seconds until cancelled."""
        while True:
            await asyncio.sleep(every)
            if self.reload_if_changed():
                on_reload()

    def _built(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        for path, flag in ((self._certificate, "--ssl-certfile"), (self._key, "--ssl-keyfile")):
            if path is not None and not path.is_file():
                raise ConfigError(f"{flag}: there is no file {path}.")
        asked: list[bool] = []

        def password() -> str:
            asked.append(True)  # and so OpenSSL never asks on the terminal
            return self._password or ""

        try:
            context.load_cert_chain(self._certificate, self._key, password)
        except PermissionError as error:
            raise ConfigError(f"{self._certificate} or {self._key} may not be read by this user.") from error
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ConfigError(self._what_is_wrong(error, locked=bool(asked))) from error

    def _what_is_wrong(self, error: Exception, *, locked: bool) -> str:
        if "KEY_VALUES_MISMATCH" in (getattr(error, "reason", None) or ""):
            return f"The key {self._key} does not belong to the certificate {self._certificate}."
        if locked:
            return f"The key {self._key or self._certificate} is encrypted, and this password does not fit."
        where = self._certificate if self._key is None else f"{self._certificate} or {self._key}"
        hint = "" if self._key else " (name the key with --ssl-keyfile)"
        return f"{where} is not a PEM certificate with its key{hint}."

    def _state(self) -> tuple[Stamp | None, ...]:
        """What changes when a file is written or replaced, symbolic links of mounted secrets included."""
        return tuple(stamp(path) for path in (self._certificate, self._key) if path is not None)


def stamp(path: Path) -> Stamp | None:
    """What changes when a file is written or replaced; None while there is none that may be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
