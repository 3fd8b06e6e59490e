"""The table of failures."""

from __future__ import annotations

import pytest

from infera_cli import errors
from infera_cli.protocol.failures import SATURATED_CODE, failure_of, status_of, wait_of

SATURATED = errors.TooManyRequests("full", code=SATURATED_CODE, retry_after=10)


@pytest.mark.parametrize(
    ("error", "openai", "anthropic", "kind", "again"),
    [
        (errors.TooManyRequests("quota"), 429, 429, "rate_limit_error", True),
        (SATURATED, 429, 529, "overloaded_error", True),
        (errors.NoRoutableWorker("none"), 503, 529, "overloaded_error", True),
        (errors.WorkerUnreachable("dead"), 502, 502, "api_error", True),
        (errors.UpstreamTimeout("late"), 504, 504, "timeout_error", False),
        (errors.BodyTooLarge("big"), 413, 413, "request_too_large", False),
        (errors.Unauthorized("key"), 401, 401, "authentication_error", False),
        (errors.Forbidden("model"), 403, 403, "permission_error", False),
        (errors.ModelNotFound("model"), 404, 404, "not_found_error", False),
        (errors.HeadersTooLarge("head"), 431, 431, "invalid_request_error", False),
        (errors.InferaError("bug"), 500, 500, "api_error", False),
    ],
)
def test_every_failure_has_its_row(
    error: errors.InferaError, openai: int, anthropic: int, kind: str, again: bool
) -> None:
    """Both APIs' statuses, Anthropic's type, and whether asking again makes sense."""
    row = failure_of(error)
    assert (status_of(error, anthropic=False), status_of(error, anthropic=True)) == (openai, anthropic)
    assert (row.anthropic_type, row.again) == (kind, again)


def test_the_wait_is_spread_within_its_limits() -> None:
    """An estimate moves by a fifth both ways and stays between 2 and 60 seconds; a documented wait is said as it is."""
    assert [wait_of(SATURATED, dice) for dice in (0.0, 0.5, 1.0)] == [8, 10, 12]
    assert wait_of(errors.TooManyRequests("q", retry_after=0.1), 0.0) == 2
    assert wait_of(errors.TooManyRequests("q", retry_after=500), 1.0) == 60
    assert [wait_of(errors.NoRoutableWorker("n", retry_after=5), dice) for dice in (0.0, 1.0)] == [5, 5]
    assert wait_of(errors.Unauthorized("key"), 0.5) is None
