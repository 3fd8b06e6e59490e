"""`infera version`: what is installed, and what it runs on."""

from __future__ import annotations

import importlib.util
import platform
from importlib import metadata
from typing import Annotated

import typer

from infera_cli import __version__
from infera_cli.cli.console import console
from infera_cli.cli.groups import PlainCommand, verb
from infera_cli.errors import UsageError

app = verb()

PARTS = ("uvicorn", "fastapi", "httptools", "uvloop", "typer")


@app.command(cls=PlainCommand)
def version(
    output: Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help="table or json.")] = "table",
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
) -> None:
    """Show the version of infera, of Python, and of the parts that matter on the wire."""
    if output not in ("table", "json"):
        raise UsageError(f"-o must be table or json, not {output!r}")
    if as_json or output == "json":
        parts = {part: metadata.version(part) for part in PARTS}
        console.json({"infera": __version__, "compiled": is_compiled(), "python": platform.python_version(),
                      "platform": platform.platform(), "parts": parts})
        return
    how = "compiled" if is_compiled() else "interpreted"
    console.data(f"infera {__version__} ({how}), Python {platform.python_version()}")


def is_compiled() -> bool:
    """Whether the hot path runs as machine code (docs/decisions/0009)."""
    found = importlib.util.find_spec("infera_cli.routing.ledger")
    return found is not None and found.origin is not None and not found.origin.endswith(".py")
