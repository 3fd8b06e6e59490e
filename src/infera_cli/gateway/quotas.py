"""What a client key may: which models, and how many requests a minute.

A Plan in front of the policy's own, installed only where some key has limits, so that nobody else pays for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from infera_cli.errors import Forbidden, QuotaUsedUp
from infera_cli.gateway.identity import identify
from infera_cli.gateway.plan import Plan, go_on
from infera_cli.gateway.translation.relay import AliasedRelay

if TYPE_CHECKING:
    from infera_cli.gateway.gate import Gate
    from infera_cli.gateway.relay import Relay

_COUNTING = b"/v1/messages/count_tokens"
"""Costs no engine anything, and editors ask dozens of times at their start (R056)."""


class Limits(NamedTuple):
    """`models`: names and patterns, empty for all; `per_minute`: requests, None for any number."""

    models: Sequence[str] = ()
    per_minute: int | None = None


class Quotas:
    """A gateway.plan.Plan; `limits` by key, `inner` is what prepares the requests that may go on."""

    def __init__(self, gate: Gate, limits: Mapping[bytes, Limits], inner: Plan | None) -> None:
        self._gate = gate
        self._limits = limits
        self._inner = inner
        self._left: dict[bytes, tuple[float, float]] = {}
        """By key: how many requests may still come at once, and when that was true (seconds)."""

    def begin(self, relay: Relay) -> None:
        """See Plan. Raises Forbidden, QuotaUsedUp."""
        body = relay.body if relay.body is not None else b""
        model, session, pin = identify(relay.head, body, self._gate.random_bytes)
        key = self._gate.access.key_shown(relay.head.headers)
        limits = self._limits.get(key) if key is not None else None
        if key is not None and limits is not None:
            _check_model(relay, model, limits.models)
            if limits.per_minute is not None and not relay.target.startswith(_COUNTING):
                self._count(key, limits.per_minute, relay.received)
        go_on(relay, self._inner, model, session, pin)

    def _count(self, key: bytes, per_minute: int, now: float) -> None:
        """A bucket that holds a minute's worth, and fills evenly."""
        left, since = self._left.get(key, (float(per_minute), now))
        left = min(float(per_minute), left + (now - since) * per_minute / 60)
        if left < 1:
            self._left[key] = left, now
            raise QuotaUsedUp(
                f"This key may send {per_minute} requests a minute, and they are used up.",
                retry_after=(1 - left) * 60 / per_minute,
            )
        self._left[key] = left - 1, now


def _check_model(relay: Relay, model: str | None, allowed: Sequence[str]) -> None:
    """By the client's name of the model, or by the engine's."""
    if not allowed:
        return
    asked = relay.asked_model if isinstance(relay, AliasedRelay) else None
    names = [name for name in (asked, model) if name is not None]
    if any(fnmatchcase(name, pattern) for name in names for pattern in allowed):
        return
    told = f"This key may not use the model {names[0][:200]!r}" if names else "This key must name a model"
    raise Forbidden(f"{told}; it may use: {', '.join(allowed)}.", param="model", code="model_not_allowed")
