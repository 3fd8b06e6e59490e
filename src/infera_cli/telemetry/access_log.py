"""One line a relayed request, formatted and written a batch at a time, off the request's way (R182).

Ids are written only if they are sound; bodies, credentials and query strings never.
"""

from __future__ import annotations

import re
import sys
from typing import Any, TextIO

from infera_cli.events import RequestDone
from infera_cli.telemetry.logs import LogFormat, cut, escaped, json_line, stamp
from infera_cli.telemetry.recorder import Batch

LOGGER = "infera.access"

_is_sound = re.compile(r"[A-Za-z0-9._:-]{1,128}").fullmatch
_are_sound = re.compile(r"id=[A-Za-z0-9._:-]{1,128} session=(?!None$)[A-Za-z0-9._:-]{1,128}").fullmatch
_FREE_TEXT_LIMIT = 200


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
    """`INFO infera.access: 200 ok POST /v1/… worker=… why=… …`, with its newline."""
    line = (
        f"INFO {LOGGER}: {done.status} {done.outcome} POST {done.path[:_FREE_TEXT_LIMIT]} {_ids(done)} "
        f"model={_model(done.model)} worker={done.worker or '-'} "
        f"why={done.why or '-'} retries={done.retries} {_times(done)} "
        f"in={done.bytes_in} out={done.bytes_out} chunks={done.chunks} peer={done.peer}"
    )
    if done.error is not None:
        line += ' error="' + done.error[:_FREE_TEXT_LIMIT].replace('"', "'") + '"'
    if not line.isprintable():
        line = escaped(line)
    return (line if len(line) < 500 else cut(line)) + "\n"


def _model(name: str | None) -> str:
    """In quotes where a client's blanks or quotes could pass for other fields of the line."""
    if not name:
        return "-"
    if " " in name or '"' in name:
        name = '"' + name[:_FREE_TEXT_LIMIT].replace('"', "'") + '"'
    return name[: _FREE_TEXT_LIMIT + 2]


def _ids(done: RequestDone) -> str:
    ids = f"id={done.id} session={done.session}"
    return ids if _are_sound(ids) else f"id={_sound(done.id)} session={_sound(done.session)}"


def _times(done: RequestDone) -> str:
    """In milliseconds; `-` for a step that was not reached."""
    received, picked, first = done.received, done.picked, done.first_byte
    if received is None or picked is None or first is None:
        pick = _less(picked, received)
        return f"queue={_ms(received)} pick={_ms(pick)} first={_ms(first)} total={_ms(done.total)}"
    return (
        f"queue={received * 1e3:.1f}ms pick={(picked - received) * 1e3:.1f}ms "
        f"first={first * 1e3:.1f}ms total={done.total * 1e3:.1f}ms"
    )


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


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f}ms"
