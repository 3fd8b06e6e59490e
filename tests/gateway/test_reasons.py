"""Why a request was refused, by the class of the refusal."""

from __future__ import annotations

from typing import get_args

import pytest

from infera_cli import errors
from infera_cli.errors import InferaError
from infera_cli.events import Reason
from infera_cli.gateway.record import reason_of

TABLE: dict[type[InferaError], Reason] = {
    errors.RequestError: "bad_request",
    errors.MethodNotAllowed: "bad_request",
    errors.Conflict: "bad_request",
    errors.Unauthorized: "unauthorized",
    errors.Forbidden: "forbidden",
    errors.NotFound: "other",
    errors.ModelNotFound: "unknown_model",
    errors.RequestTimeout: "body_timeout",
    errors.BodyTooLarge: "body_too_large",
    errors.HeadersTooLarge: "headers_too_large",
    errors.TooManyRequests: "full",
    errors.QuotaUsedUp: "quota",
    errors.NoRoutableWorker: "nothing_routable",
    errors.AllFull: "full",
    errors.FleetError: "other",
    errors.WorkerUnreachable: "other",
    errors.UpstreamTimeout: "other",
    errors.BrokenStream: "other",
    errors.InferaError: "other",
}
NEVER_ANSWERED = {
    errors.UsageError, errors.ConfigError, errors.AddressInUse, errors.StateLocked, errors.ServerUnreachable,
    errors.DiscoveryError, errors.DiscoveryRefused, errors.LaunchFailed, errors.HostUnreachable, errors.HostRefused,
    errors.IllegalMove,
}  # fmt: skip
"""No client is told of these where requests are relayed."""


@pytest.mark.parametrize(("kind", "reason"), TABLE.items(), ids=lambda one: getattr(one, "__name__", one))
def test_each_class_of_refusal_has_its_reason(kind: type[InferaError], reason: Reason) -> None:
    """One row a class, as `infera_requests_rejected_total` and the request log tell it."""
    assert reason_of(kind("no")) == reason


def test_a_class_made_elsewhere_has_the_reason_of_its_nearest_ancestor() -> None:
    """A refusal that is told apart for its words alone counts as what it is."""

    class NoSuchKey(errors.Unauthorized):
        """A finer kind of refusal."""

    assert reason_of(NoSuchKey("no")) == "unauthorized"


def test_no_class_and_no_reason_is_left_out() -> None:
    """Whoever adds a class of error has to say here why a request would be refused with it."""
    family = {one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, InferaError)}
    assert family == TABLE.keys() | NEVER_ANSWERED
    assert set(TABLE.values()) == set(get_args(Reason))
