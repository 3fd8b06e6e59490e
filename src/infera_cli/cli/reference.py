"""`python -m infera_cli.cli.reference [FOLDER]`: writes what is generated, from the repository's root.

The two reference pages and the completion scripts; a test fails when one of them is stale (style.md 28).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from infera_cli.cli.app import command
from infera_cli.cli.groups import CONTEXT, WIDTH
from infera_cli.cli.scripts import FILES, script
from infera_cli.config.reference import settings_page
from infera_cli.telemetry.reference import metrics_page

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


def pages() -> Mapping[str, str]:
    """Every generated file, by its path in the repository."""
    made = {"docs/reference/settings.md": settings_page(), "docs/reference/cli.md": commands_page()}
    made["docs/reference/metrics.md"] = metrics_page()
    return {**made, **{f"completions/{name}": script(shell) for shell, name in FILES.items()}}


def commands_page() -> str:
    """The help page of every command, as Markdown."""
    root = typer.Context(command(), info_name="infera", **{**CONTEXT, "terminal_width": WIDTH})
    return "\n".join([_HEAD, *(f"## `{path}`\n\n```text\n{text}\n```\n" for path, text in _helps(root))])


def _helps(context: Any) -> Iterator[tuple[str, str]]:
    yield context.command_path, context.get_help()
    for name in getattr(context.command, "list_commands", lambda _: ())(context):
        inner = context.command.get_command(context, name)
        yield from _helps(typer.Context(inner, parent=context, info_name=name, terminal_width=WIDTH))


def main() -> None:
    """Write every page under the folder that was named, the current one by default."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    for name, text in pages().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
