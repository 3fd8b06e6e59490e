"""The settings that servers and launched workers share about discovery, and what they mean together.

(Source: infera-wire §10; rulings 7, 21, 22.) A field cannot belong to two dataclasses, hence functions.
"""

from __future__ import annotations

from typing import Protocol

from infera_cli.config import secrets
from infera_cli.config.catalogue import setting
from infera_cli.config.kinds import Choice, Integer, Many, Text
from infera_cli.errors import ConfigError, UsageError

GROUP = "Discovery"


class Discovery(Protocol):
    """Settings that have the fields of this file."""

    @property
    def discovery_backend(self) -> str | None:
        """`--discovery-backend`."""
    @property
    def etcd_endpoint(self) -> tuple[str, ...]:
        """`--etcd-endpoint`."""
    @property
    def etcd_prefix(self) -> str:
        """`--etcd-prefix`."""
    @property
    def etcd_user(self) -> str | None:
        """`--etcd-user`."""
    @property
    def etcd_password(self) -> str | None:
        """`--etcd-password`."""
    @property
    def etcd_password_file(self) -> str | None:
        """`--etcd-password-file`."""
    @property
    def etcd_ca_file(self) -> str | None:
        """`--etcd-ca-file`."""
    @property
    def etcd_cert_file(self) -> str | None:
        """`--etcd-cert-file`."""
    @property
    def etcd_key_file(self) -> str | None:
        """`--etcd-key-file`."""
    @property
    def lease_time(self) -> int:
        """`--lease-time`."""


def discovery_backend() -> str | None:
    """`--discovery-backend`."""
    return setting(
        None, Choice(("etcd",), later=("kubernetes",)), GROUP,
        "Where workers register.", unset="etcd with --etcd-endpoint")  # fmt: skip


def etcd_endpoint() -> tuple[str, ...]:
    """`--etcd-endpoint`."""
    return setting(
        (), Many(Text("HOST:PORT")), GROUP,
        "Address of an etcd member; repeat it, or use commas, for more.")  # fmt: skip


def etcd_prefix() -> str:
    """`--etcd-prefix`."""
    return setting("/infera/workers/", Text("PREFIX"), GROUP, "Where the records of workers are kept in etcd.")


def etcd_user() -> str | None:
    """`--etcd-user`."""
    return setting(None, Text("NAME"), GROUP, "User name for etcd.")


def etcd_password() -> str | None:
    """`--etcd-password`."""
    return setting(
        None, Text("PASSWORD"), GROUP,
        "Password of --etcd-user. Visible in process lists as a flag.", secret=True)  # fmt: skip


def etcd_password_file() -> str | None:
    """`--etcd-password-file`."""
    return setting(None, Text("FILE"), GROUP, "File that holds the password of --etcd-user.")


def etcd_ca_file() -> str | None:
    """`--etcd-ca-file`."""
    return setting(None, Text("FILE"), GROUP, "Certificates (PEM) that etcd's own is checked against.")


def etcd_cert_file() -> str | None:
    """`--etcd-cert-file`."""
    return setting(None, Text("FILE"), GROUP, "Client certificate (PEM) to show to etcd.")


def etcd_key_file() -> str | None:
    """`--etcd-key-file`."""
    return setting(None, Text("FILE"), GROUP, "Private key of --etcd-cert-file (PEM).")


def lease_time(text: str) -> int:
    """`--lease-time`, in seconds; the two programs use it for different ends."""
    return setting(30, Integer("SECONDS", low=1, high=3600), GROUP, text)


# ── together ─────────────────────────────────────────────────────────────────────────────────────────
def backend_of(settings: Discovery) -> str | None:
    """The backend that is used: as said, else etcd where an endpoint is named, else none."""
    return settings.discovery_backend or ("etcd" if settings.etcd_endpoint else None)


def check_discovery(settings: Discovery) -> None:
    """Raise UsageError or ConfigError where these settings cannot be used together."""
    if backend_of(settings) == "etcd" and not settings.etcd_endpoint:
        raise UsageError("--discovery-backend etcd needs --etcd-endpoint HOST:PORT")
    if not settings.etcd_prefix.strip("/"):
        raise ConfigError("--etcd-prefix must name a place of its own, not all of etcd")
    if bool(settings.etcd_cert_file) != bool(settings.etcd_key_file):
        raise ConfigError("--etcd-cert-file and --etcd-key-file go together: give both or neither")
    with_password = settings.etcd_password is not None or settings.etcd_password_file is not None
    if with_password and settings.etcd_user is None:
        raise ConfigError("an etcd password is given, but no --etcd-user")
    if settings.etcd_user is not None and not with_password:
        raise ConfigError("--etcd-user is given, but no password; see --etcd-password-file")


def etcd_secret(settings: Discovery) -> str | None:
    """The password for etcd, None when none is configured. Raises ConfigError."""
    return secrets.one(settings.etcd_password, settings.etcd_password_file, "etcd password")
