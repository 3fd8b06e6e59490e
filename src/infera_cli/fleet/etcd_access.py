"""How to reach an etcd cluster: addresses, credentials, certificates (infera-wire §1.1)."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from infera_cli.errors import ConfigError

DEFAULT_PORT = 2379


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAccess:
    """`endpoints` are base URLs, tried in turn; `timeout` is seconds per call."""

    endpoints: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    timeout: float = 10.0

    def tls(self) -> ssl.SSLContext:
        """The context for https endpoints. Raises ConfigError for a file that cannot be used (S109)."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as fault:
            raise ConfigError(f"--etcd-ca-file {self.ca_file} holds no certificates: {_words(fault)}") from None
        if self.cert_file is not None:
            try:
                context.load_cert_chain(self.cert_file, self.key_file)
            except (OSError, ssl.SSLError) as fault:
                raise ConfigError(f"--etcd-cert-file {self.cert_file} cannot be used: {_words(fault)}") from None
        return context


def endpoint_urls(texts: Iterable[str], *, tls: bool) -> tuple[str, ...]:
    """Base URLs of what was given, each text one endpoint or several with commas between.

    A scheme is kept; without one it is https with `tls`, else http; a missing port is 2379.
    Raises ConfigError.
    """
    words = [word.strip() for text in texts for word in text.split(",")]
    return tuple(dict.fromkeys(_url(word, tls) for word in words if word))


def _url(text: str, tls: bool) -> str:
    whole = text if "://" in text else f"{'https' if tls else 'http'}://{text}"
    try:
        parts = urlsplit(whole.rstrip("/"))
        port = parts.port or DEFAULT_PORT
    except ValueError:
        raise _refuse(text) from None
    usable = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
    if not usable or not text.isprintable() or " " in text or parts.query or parts.fragment:
        raise _refuse(text)
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    return f"{parts.scheme}://{host}:{port}{parts.path}"


def _refuse(text: str) -> ConfigError:
    if "@" in text:
        return ConfigError("--etcd-endpoint holds credentials; use --etcd-user and --etcd-password-file")
    return ConfigError(f"--etcd-endpoint {text!a} is no address; write host:port, e.g. 10.0.0.5:2379")


def _words(fault: Exception) -> str:
    return getattr(fault, "strerror", None) or str(fault)
