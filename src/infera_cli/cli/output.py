"""How a listing is shown: `-o table|wide|json|name`, the same on every command that lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from infera_cli.cli.console import Cell, console
from infera_cli.errors import UsageError

FORMATS = ("table", "wide", "json", "name")

Output = Annotated[
    str, typer.Option("-o", "--output", metavar="FORMAT", help="table, wide, json or name.",
                      autocompletion=lambda: list(FORMATS), rich_help_panel="Output")]
Json = Annotated[bool, typer.Option("--json", help="The same as -o json.", rich_help_panel="Output")]


@dataclass(frozen=True)
class Column:
    """One column of a table; `wide` ones are only shown by `-o wide`."""

    head: str
    cell: Callable[[Mapping[str, Any]], Cell]
    wide: bool = False


def show(
    noun: str, items: Sequence[Mapping[str, Any]], columns: Sequence[Column], *,
    key: str, output: str, as_json: bool,
) -> None:
    """Print a listing. `noun` names the JSON array, `key` the field that `-o name` prints."""
    output = "json" if as_json else output
    if output not in FORMATS:
        raise UsageError(f"-o must be one of {', '.join(FORMATS)}, not {output!r}")
    if output == "json":
        console.json({noun: list(items)})
    elif output == "name":
        for item in items:
            console.data(str(item[key]))
    elif items:
        kept = [column for column in columns if output == "wide" or not column.wide]
        rows = [[column.cell(item) for column in kept] for item in items]
        console.table([column.head for column in kept], rows)
    else:
        console.say(f"no {noun}")
