"""The commands page of the reference, written from the commands themselves (style.md 28)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from infera_cli.cli.app import command
from infera_cli.cli.groups import CONTEXT, WIDTH

_HEAD = """# Commands

Written by `make docs` from the commands themselves; do not edit.

Data goes to standard output, everything else to standard error. Listings take `-o table|wide|json|name`;
every JSON document has a `schema_version`, and fields only get added. `NO_COLOR` is respected.

| exit status | meaning |
|---|---|
| 0 | fine |
| 1 | it did not work: a bad file or value, a port in use, a server that cannot be reached |
| 2 | the command line is wrong, or asks for something that is not in this version |
| 130 | interrupted |
"""


def commands_page() -> str:
    """The help page of every command, as Markdown."""
    root = typer.Context(command(), info_name="infera", **{**CONTEXT, "terminal_width": WIDTH})
    return "\n".join([_HEAD, *(f"## `{path}`\n\n```text\n{text}\n```\n" for path, text in _helps(root))])


def _helps(context: Any) -> Iterator[tuple[str, str]]:
    yield context.command_path, context.get_help()
    for name in getattr(context.command, "list_commands", lambda _: ())(context):
        inner = context.command.get_command(context, name)
        yield from _helps(typer.Context(inner, parent=context, info_name=name, terminal_width=WIDTH))
