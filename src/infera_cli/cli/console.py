"""All the talking of the command line: data on stdout, everything else on stderr.

Colour only where the stream is a terminal that wants it; never a traceback unless debugging was asked for.
(Source: design.md §6; bench-and-cli §C1.)
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from infera_cli.errors import ConfigError

SCHEMA_VERSION = 1
"""Of every JSON document the command line prints; fields only get added."""

Cell = str | int | float | bool | None


class Console:
    """Where a command speaks. `debug` shows tracebacks."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self.debug = bool(self._environ.get("INFERA_DEBUG"))

    # ── data ─────────────────────────────────────────────────────────────────────────────────────────
    def data(self, text: str) -> None:
        """One line, or several, of what the command was asked for."""
        try:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as fault:
            raise ConfigError(f"cannot write the output: {fault.strerror}") from None

    def json(self, document: Mapping[str, Any]) -> None:
        """One JSON document, with its schema version in front."""
        self.data(json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2, ensure_ascii=False))

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Columns in full width, nothing cut off; numbers to the right."""
        cells = [[_text(cell) for cell in row] for row in rows]
        widths = [max(len(head), *(len(row[i]) for row in cells)) if cells else len(head)
                  for i, head in enumerate(heads)]
        right = [_all_numbers([row[i] for row in rows]) for i in range(len(heads))]
        self.data(self._style("1", _line(heads, widths, right), sys.stdout))
        for row in cells:
            self.data(_line(row, widths, right))

    # ── talk ─────────────────────────────────────────────────────────────────────────────────────────
    def say(self, text: str) -> None:
        """A remark for the person at the terminal."""
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def warn(self, text: str) -> None:
        """Something to look at; the command goes on."""
        self.say(self._style("33", "warning:", sys.stderr) + f" {text}")

    def error(self, text: str) -> None:
        """Why the command ends."""
        self.say(self._style("1;31", "error:", sys.stderr) + f" {text}")

    def crash(self, fault: BaseException) -> None:
        """A fault of ours: one sentence, and the traceback for those who asked."""
        if self.debug:
            self.say("".join(traceback.format_exception(fault)).rstrip())
        kind = type(fault).__name__
        hint = "" if self.debug else "; INFERA_DEBUG=1 shows where"
        self.error(f"this is a fault in infera itself ({kind}: {fault}){hint}")

    def colour(self, stream: TextIO) -> bool:
        """Whether `stream` gets colours."""
        if self._environ.get("NO_COLOR"):
            return False
        if self._environ.get("FORCE_COLOR") or self._environ.get("CLICOLOR_FORCE"):
            return True
        return stream.isatty() and self._environ.get("TERM") != "dumb"

    def _style(self, code: str, text: str, stream: TextIO) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour(stream) else text


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


def _all_numbers(column: Sequence[Cell]) -> bool:
    known = [cell for cell in column if cell is not None]
    return bool(known) and all(type(cell) in (int, float) for cell in known)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = (cell.rjust(width) if r else cell.ljust(width)
              for cell, width, r in zip(cells, widths, right, strict=True))
    return "  ".join(padded).rstrip()


console = Console()
"""The one the commands use."""
