"""The names of the routing policies, asked for only when somebody wants them."""

from __future__ import annotations

from collections.abc import Sequence


def policy_names() -> Sequence[str]:
    """Every policy of this version, the default one first."""
    from infera_cli.routing.catalogue import POLICIES  # noqa: PLC0415 - `infera --help` does not need routing

    return tuple(POLICIES)
