"""A recording in progress: rows from the server into a file, by time at the end."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from infera_cli.errors import ConfigError


def record(lines: Iterable[bytes], path: Path, tell: Callable[[int], None] = lambda _rows: None) -> int:
    """Write the rows in `lines` to `path`; returns how many.

    Rows come in the order of their ends and are sorted by time once the stream is over; a Ctrl-C ends it, too, and what
    came until then is kept. Raises ConfigError when the file cannot be written, and what reading raises.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    rows = 0
    try:
        with beside.open("wb") as file, contextlib.suppress(KeyboardInterrupt):
            for line in lines:
                if line.strip():
                    file.write(line)
                    file.flush()
                    rows += 1
                tell(rows)
        _sort(beside)
        beside.replace(path)
    except OSError as fault:
        raise ConfigError(f"cannot write {path}: {fault.strerror}") from None
    finally:
        beside.unlink(missing_ok=True)
    return rows


def _sort(path: Path) -> None:
    kept = path.read_bytes().splitlines(keepends=True)
    kept.sort(key=lambda line: json.loads(line)["timestamp"])
    path.write_bytes(b"".join(kept))
