"""`infera version`: what is installed, and what it runs on."""

from __future__ import annotations

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
        console.json({"infera": __version__, "python": platform.python_version(),
                      "platform": platform.platform(), "parts": parts})
        return
    console.data(f"infera {__version__}, Python {platform.python_version()}")
