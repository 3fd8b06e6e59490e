"""Logging: `LEVEL logger: message` on standard error, or a JSON object a line (replica-router §1.12).

No line is longer than 2 kB, control characters are escaped, so no client can forge a line or paint a terminal
(R182).
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import msgspec

LINE_LIMIT = 2000
LogFormat = str
"""`text` or `json`."""

_NOISY = ("httpx", "httpcore", "asyncio", "uvicorn.access")


def setup(level: str = "INFO", form: LogFormat = "text", stream: TextIO | None = None) -> None:
    """Route everything that is logged to `stream` (standard error), in the form asked for."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    for name in ("uvicorn", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True


def escaped(text: str) -> str:
    """`text` with everything unprintable written as an escape; newlines too."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cut(line: str, limit: int = LINE_LIMIT) -> str:
    """At most `limit` bytes of UTF-8, with a mark where something is missing."""
    raw = line.encode("utf-8", "replace")
    if len(raw) <= limit:
        return line
    return raw[: limit - 3].decode("utf-8", "ignore") + "…"


class TextFormatter(logging.Formatter):
    """`LEVEL logger: message`; the lines of a traceback follow, indented."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, or several when there is a traceback."""
        lines = [cut(f"{record.levelname} {record.name}: {escaped(record.getMessage())}")]
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            lines += [cut(f"  {escaped(line)}") for line in trace.splitlines()]
        return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, and error with the end of a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        members = {
            "time": stamp(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": cut(escaped(record.getMessage()), LINE_LIMIT // 3),
        }
        if record.exc_info:
            members["error"] = escaped(self.formatException(record.exc_info)[-LINE_LIMIT // 6 :])
        return json_line(members)


def stamp(unix: float) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def json_line(members: object) -> str:
    """Compact JSON."""
    return msgspec.json.encode(members).decode()
