"""How failures look to the clients of both APIs: one table.

OpenAI's status and type are the error's own (`errors`); this says what else there is to say: a code, Anthropic's
status and type, whether asking again makes sense, and whether to wait before that.
"""

from __future__ import annotations

from typing import NamedTuple

from infera_cli.errors import (
    BodyTooLarge,
    FleetError,
    Forbidden,
    InferaError,
    ModelNotFound,
    NoRoutableWorker,
    NotFound,
    RequestError,
    RequestTimeout,
    TooManyRequests,
    Unauthorized,
    UpstreamTimeout,
)

SATURATED_CODE = "server_overloaded"
SHORTEST_WAIT, LONGEST_WAIT = 2.0, 60.0
USUAL_WAIT = 5.0
"""Seconds; where nobody has an estimate."""
_JITTER = 0.2


class Failure(NamedTuple):
    """A row. `code` is used where the error brings none; `again`: the same request may succeed; `wait`: later."""

    code: str | None
    anthropic_status: int
    anthropic_type: str
    again: bool = False
    wait: bool = False


SATURATED = Failure(SATURATED_CODE, 529, "overloaded_error", again=True, wait=True)
TABLE: dict[type[InferaError], Failure] = {
    TooManyRequests: Failure("rate_limit_exceeded", 429, "rate_limit_error", again=True, wait=True),
    NoRoutableWorker: Failure(None, 529, "overloaded_error", again=True, wait=True),
    UpstreamTimeout: Failure(None, 504, "timeout_error"),
    FleetError: Failure(None, 502, "api_error", again=True),
    RequestTimeout: Failure(None, 408, "timeout_error", again=True),
    BodyTooLarge: Failure(None, 413, "request_too_large"),
    Unauthorized: Failure("invalid_api_key", 401, "authentication_error"),
    Forbidden: Failure(None, 403, "permission_error"),
    ModelNotFound: Failure("model_not_found", 404, "not_found_error"),
    NotFound: Failure(None, 404, "not_found_error"),
    RequestError: Failure(None, 400, "invalid_request_error"),
    InferaError: Failure(None, 500, "api_error"),
}
"""By class; a class without a row has that of its nearest ancestor, and its own status."""


def failure_of(error: InferaError) -> Failure:
    """The row of `error`."""
    if error.code == SATURATED_CODE:
        return SATURATED
    kind = next(kind for kind in type(error).__mro__ if kind in TABLE)
    row = TABLE[kind]
    return row if kind in {NoRoutableWorker, type(error)} else row._replace(anthropic_status=error.status)


def status_of(error: InferaError, *, anthropic: bool) -> int:
    """The status for a client of that API."""
    return failure_of(error).anthropic_status if anthropic else error.status


QUEUE_FULL_CODE = "queue_full"
"""The scheduler's queue moves all the time: come again in a second (replica-router §2.7)."""


def wait_of(error: InferaError, dice: float) -> int | None:
    """Whole seconds for Retry-After, None where waiting does not help.

    An estimate is spread by a fifth both ways, so that those who were refused together do not return together; `dice`
    is a random number from 0 to 1. What is documented for a fleet without a worker is no estimate, and said as it is.
    """
    if not failure_of(error).wait:
        return None
    if error.code == QUEUE_FULL_CODE:
        return 1
    if isinstance(error, NoRoutableWorker) and error.retry_after is not None:
        return round(error.retry_after)
    estimate = min(LONGEST_WAIT, max(SHORTEST_WAIT, error.retry_after or USUAL_WAIT))
    spread = estimate * (1 + _JITTER * (2 * dice - 1))
    return round(min(LONGEST_WAIT, max(SHORTEST_WAIT, spread)))
