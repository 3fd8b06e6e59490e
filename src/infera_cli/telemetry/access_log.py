"""One line a relayed request, formatted and written a batch at a time, off the request's way (R182).

Ids are written only if they are sound; bodies, credentials and query strings never.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Any, Final, TextIO

from infera_cli.events import RequestDone
from infera_cli.telemetry.logs import LogFormat, escaped, json_line, stamp
from infera_cli.telemetry.recorder import Batch

LOGGER = "infera.access"

_is_sound = re.compile(r"[A-Za-z0-9._:-]{1,128}").fullmatch
_FREE_TEXT_LIMIT: Final = 200
_MINTED: Final = 32


class AccessLog:
    """Writes batches to `stream` (standard error), each in one write."""

    def __init__(self, form: LogFormat = "text", stream: TextIO | None = None) -> None:
        self._line = json_access_line if form == "json" else access_line
        self._stream = stream or sys.stderr

    def add(self, batch: Batch) -> None:
        """Write a line for each request."""
        line = self._line
        self._stream.write("".join([line(done) for done in batch]))
        self._stream.flush()


def access_line(done: RequestDone) -> str:
    """`INFO infera.access: 200 ok POST /v1/… model=m worker=w …`, with its newline; times in milliseconds.

    What requests have in common is written once and remembered, since the same few combinations come again and again.
    """
    line = "%s id=%s session=%s first=%s total=%s in=%d out=%d chunks=%d\n" % (  # noqa: UP031 - one step of C
        _common(done.status, done.outcome, done.path, done.model, done.worker, done.why, done.retries, done.peer),
        _id(done.id), _id(done.session), "-" if done.first_byte is None else _milliseconds(done.first_byte),
        _milliseconds(done.total), done.bytes_in, done.bytes_out, done.chunks,
    )  # fmt: skip
    return line if done.error is None else f"{line[:-1]} error={_quoted(done.error)}\n"


@lru_cache(maxsize=4096)
def _common(
    status: int, outcome: str, path: str, model: str | None, worker: str | None, why: str, retries: int, peer: str
) -> str:
    return (
        f"INFO {LOGGER}: {status} {outcome} POST {_shown(path)} model={_shown(model)} worker={_shown(worker)} "
        f"why={why or '-'} retries={retries} peer={peer}"
    )


def _shown(text: str | None) -> str:
    """`text` as one word of the line; in quotes where blanks or quotes could pass for other fields of it."""
    if not text:
        return "-"
    return _quoted(text) if " " in text or '"' in text else escaped(text[:_FREE_TEXT_LIMIT])


def _quoted(text: str) -> str:
    return '"' + escaped(text[:_FREE_TEXT_LIMIT].replace('"', "'")) + '"'


def _milliseconds(seconds: float) -> str:
    """With one place; whole numbers are written several times as fast as floats."""
    tenths = int(seconds * 1e4 + 0.5)
    return f"{tenths // 10}.{tenths % 10}ms"


def _id(name: str | None) -> str:
    """Minted ids are hex digits, which is quickly seen; others have to match the pattern."""
    if name is not None and (len(name) == _MINTED and name.isalnum() and name.isascii()):
        return name
    return _sound(name)


def json_access_line(done: RequestDone) -> str:
    """The same as a JSON object; durations in seconds."""
    members: dict[str, Any] = {
        "time": stamp(done.started + done.total),
        "level": "INFO",
        "logger": LOGGER,
        "status": done.status,
        "outcome": done.outcome,
        "path": _clean(done.path),
        "id": _sound(done.id),
        "session": _sound(done.session),
        "model": _clean(done.model),
        "worker": _clean(done.worker),
        "why": done.why,
        "retries": done.retries,
        "queue": done.received,
        "pick": _less(done.picked, done.received),
        "first_byte": done.first_byte,
        "total": done.total,
        "bytes_in": done.bytes_in,
        "bytes_out": done.bytes_out,
        "chunks": done.chunks,
        "peer": done.peer,
        "error": _clean(done.error),
    }
    return json_line(members) + "\n"


def _sound(name: str | None) -> str:
    return name if name is not None and _is_sound(name) else "-"


def _clean(text: str | None) -> str | None:
    return None if text is None else escaped(text[: _FREE_TEXT_LIMIT // 2])


def _less(end: float | None, start: float | None) -> float | None:
    return None if end is None or start is None else end - start
