"""A recording in progress: rows from the server into a file, by time at the end."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from infera_cli.errors import ConfigError, ServerUnreachable

End = Literal["over", "lost", "interrupted"]


class Recording(NamedTuple):
    """How many rows were kept, and why there are no more: the server ended it, was lost, or a person had enough."""

    rows: int
    end: End
    reason: str = ""


def record(lines: Iterable[bytes], path: Path, tell: Callable[[int], None] = lambda _rows: None) -> Recording:
    """Write the rows in `lines` to `path`; without a row there is no file.

    Rows come in the order of their ends and are sorted by time once the stream is over. However it ends, what came
    until then is kept. Raises ConfigError, which says where the rows are, when the file cannot be written, and what
    reading raises before a first row.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    rows, size, reason = 0, 0, ""
    end: End = "over"
    try:
        with beside.open("wb") as file:
            try:
                for line in lines:
                    if line.strip():
                        file.write(line)
                        file.flush()
                        rows += 1
                        size += len(line)
                    tell(rows)
            except KeyboardInterrupt:
                end = "interrupted"
            except ServerUnreachable as fault:
                if not rows:
                    raise
                end, reason = "lost", fault.message
        if rows:
            _sort(beside)
            beside.replace(path)
    except OSError as fault:
        raise ConfigError(f"cannot write {path}: {fault.strerror}{_kept(beside, rows, size)}") from None
    finally:
        if not rows:
            beside.unlink(missing_ok=True)
    return Recording(rows, end, reason)


def _kept(beside: Path, rows: int, size: int) -> str:
    """Where the rows stay that cannot have their name. Of `beside` their `size` counts: the last may be half a row."""
    if not rows:
        return ""
    with contextlib.suppress(OSError):
        os.truncate(beside, size)
    return f"; the recording is in {beside}"


def _sort(path: Path) -> None:
    kept = path.read_bytes().splitlines(keepends=True)
    kept.sort(key=lambda line: json.loads(line)["timestamp"])
    with path.open("r+b") as file:  # in its place, which a full disk has
        file.write(b"".join(kept))
