"""Our own refusals as answers: status, body and header fields in the API that was called (`protocol.failures`)."""

from __future__ import annotations

from typing import NamedTuple

from infera_cli.errors import BodyTooLarge, InferaError, WorkerUnreachable
from infera_cli.protocol import anthropic, openai
from infera_cli.protocol.failures import failure_of, status_of, wait_of
from infera_cli.routing.types import Worker

_ANTHROPIC = "/v1/messages"


class Refusal(NamedTuple):
    """`fields` are names and values, both as they go on the wire."""

    status: int
    body: bytes
    fields: list[tuple[str, str]]

    @property
    def lines(self) -> bytes:
        """The fields as header lines, each with its end."""
        return b"".join([f"{name}: {value}\r\n".encode() for name, value in self.fields])


def speaks_anthropic(path: str) -> bool:
    """Whether Anthropic's clients call that path (without its query)."""
    return path == _ANTHROPIC or path.startswith(_ANTHROPIC + "/")


def refusal(path: str, error: InferaError, dice: float) -> Refusal:
    """What the client of `path` gets for `error`; `dice` is a random number from 0 to 1."""
    theirs = speaks_anthropic(path)
    body = anthropic_body(error) if theirs else openai_body(error)
    return Refusal(status_of(error, anthropic=theirs), body, refusal_fields(error, dice))


def anthropic_body(error: InferaError) -> bytes:
    """The body for Anthropic's clients."""
    return anthropic.error_body(error.message, status=failure_of(error).anthropic_status)


def openai_body(error: InferaError) -> bytes:
    """The body for everybody else."""
    code = error.code or failure_of(error).code
    return openai.error_body(error.message, type=error.type, param=error.param, code=code)


def error_event(path: str, error: InferaError) -> bytes:
    """The same inside a stream that is under way."""
    if speaks_anthropic(path):
        return anthropic.error_event(error.message, status=failure_of(error).anthropic_status)
    if path == "/v1/responses":
        return openai.responses_error_event(error.message, code=error.type)
    return openai.error_event(error.message, type=error.type)


def refusal_fields(error: InferaError, dice: float) -> list[tuple[str, str]]:
    """Whether and when to ask again, and how to show a key."""
    fields = [("x-should-retry", "true" if failure_of(error).again else "false")]
    wait = wait_of(error, dice)
    if wait is not None:
        fields.append(("retry-after", str(wait)))
    if error.status == 401:
        fields.append(("www-authenticate", "Bearer"))
    return fields


def too_large(limit: int) -> BodyTooLarge:
    """The refusal of a body over the limit."""
    return BodyTooLarge(f"The request body is over the limit of {limit} bytes (--max-body-size).")


def unreachable(worker: Worker, reason: str) -> WorkerUnreachable:
    """What the client is told when no worker was left to try; details stay in the log (S47)."""
    what = "could not be reached" if reason == "connect" else "failed before it answered"
    return WorkerUnreachable(f"Worker {worker.id} {what}, and no other one could take the request.")
