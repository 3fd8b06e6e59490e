"""Flags that the documents name and this version does not have: known, and refused in words (rulings 22)."""

from __future__ import annotations

from infera_cli.errors import UsageError

LATER: tuple[str, ...] = (
    "k8s-label-selector", "k8s-namespace",
    "router-backend",
    "nats-server", "nats-req-idle-timeout", "nats-req-max-duration", "nats-req-max-pending",
    "enable-scaling-api", "migration-limit",
)

SWITCHES = frozenset({"enable-scaling-api"})
"""Those of `LATER` that take no value."""


def variable(flag: str) -> str:
    """The environment variable of a flag (rulings 21)."""
    return "INFERA_" + flag.replace("-", "_").upper()


def refuse(flag: str, spelt: str | None = None) -> UsageError:
    """The error for a flag of `LATER`."""
    return UsageError(f"{spelt or '--' + flag} is not in this version; name the workers with "
                      "--replicas FILE or --worker URL")
