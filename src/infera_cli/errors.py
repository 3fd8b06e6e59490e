"""The error family: every expected failure is one of these, and one sentence.

Each class carries what the two ways out need: `status`, `type`, `param` and `code` for an HTTP answer,
`exit_code` for the command line. How an answer looks on the wire is `protocol`'s business.
(Source: design.md §2; rulings 5; style.md 13 and 18.)
"""

from __future__ import annotations


class InferaError(Exception):
    """An expected failure; `message` is one sentence that says what to do.

    `retry_after` is in seconds, None where waiting does not help.
    """

    status = 500
    type = "server_error"
    exit_code = 1

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after


# ── at the command line ──────────────────────────────────────────────────────────────────────────────
class UsageError(InferaError):
    """The command line itself is wrong: exit 2."""

    exit_code = 2


class ConfigError(InferaError):
    """A file or a value of a setting cannot be used: exit 1."""


class AddressInUse(InferaError):
    """The listening socket cannot be bound: exit 1."""


class StateLocked(InferaError):
    """Another owner holds the state file: exit 1 for the server, 8 for `infera fleet`."""


class ServerUnreachable(InferaError):
    """A command could not reach the server it wanted to talk to: exit 1."""


class DiscoveryError(InferaError):
    """The registry of workers could not be read or written: exit 1."""


class DiscoveryRefused(DiscoveryError):
    """The registry answered, and waiting will not change its mind: wrong credentials, no permission."""


# ── the client's fault ───────────────────────────────────────────────────────────────────────────────
class RequestError(InferaError):
    """The request cannot be served as it was sent."""

    status = 400
    type = "invalid_request_error"


class Unauthorized(RequestError):
    """No key, or a wrong one."""

    status = 401
    type = "authentication_error"


class Forbidden(RequestError):
    """The caller may not do this."""

    status = 403
    type = "permission_error"


class NotFound(RequestError):
    """No such thing here."""

    status = 404
    type = "not_found_error"


class ModelNotFound(NotFound):
    """No worker serves the model asked for; the message lists what is served (rulings 9)."""


class MethodNotAllowed(RequestError):
    """The path exists, the method does not."""

    status = 405


class RequestTimeout(RequestError):
    """The client did not send its request in time."""

    status = 408
    type = "timeout_error"


class Conflict(RequestError):
    """The state of the thing does not allow it."""

    status = 409


class BodyTooLarge(RequestError):
    """The request body is over the limit."""

    status = 413


class HeadersTooLarge(RequestError):
    """The request headers are over the limit."""

    status = 431


class TooManyRequests(RequestError):
    """The server holds as many requests as it may; `retry_after` is its estimate."""

    status = 429
    type = "rate_limit_error"


class QuotaUsedUp(TooManyRequests):
    """The caller's key has sent what it may for now, however empty the server is."""


# ── the fleet's fault ────────────────────────────────────────────────────────────────────────────────
class FleetError(InferaError):
    """The request was fine, the fleet could not serve it."""

    status = 502
    type = "upstream_error"


class NoRoutableWorker(FleetError):
    """Nothing can take the request now."""

    status = 503
    type = "service_unavailable"


class AllFull(NoRoutableWorker):
    """Everybody who could take the request is at a cap: it may wait for a place."""


class WorkerUnreachable(FleetError):
    """No worker could be reached, or all broke before they answered."""


class UpstreamTimeout(FleetError):
    """A worker did not answer in time."""

    status = 504
    type = "timeout_error"


class BrokenStream(FleetError):
    """A worker died in mid-answer."""


class LaunchFailed(FleetError):
    """A replica could not be started, or ended before it was ready."""


class HostUnreachable(FleetError):
    """A machine does not answer: nothing is known of what runs there. `infera fleet` exits 6."""

    exit_code = 6


class HostRefused(FleetError):
    """A machine answers and does not let us in, or is not who it should be. `infera fleet` exits 7."""

    exit_code = 7


# ── our own fault ────────────────────────────────────────────────────────────────────────────────────
class IllegalMove(InferaError):
    """A transition table has no such row: a fault of this program, never of a user."""
