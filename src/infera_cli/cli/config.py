"""`infera config`: what the settings are, where they came from, and whether a file can be used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from infera_cli.cli.console import console
from infera_cli.cli.groups import PlainCommand, noun
from infera_cli.cli.options import settings_of
from infera_cli.cli.output import Column, Json, Output
from infera_cli.cli.output import show as show_items
from infera_cli.config.settings import SECTIONS, ServeSettings

app = noun("Show the settings and their origins, check files.")

WithOrigin = Annotated[bool, typer.Option("--origin", help="Also say where each value came from.")]


@app.command(cls=PlainCommand)
@settings_of(ServeSettings)
def show(
    typed: dict[str, Any], *, origin: WithOrigin = False, output: Output = "table", as_json: Json = False
) -> None:
    """Every setting and its value; secrets only say whether they are set.

    Takes the flags of `infera serve`, to show what they would change.
    """
    from infera_cli.config.inspect import inspect

    items = [item for section, model in SECTIONS.items()
             for item in inspect(section, model, typed if section == "serve" else {}, os.environ)]
    columns = [Column("SETTING", lambda i: i["name"]), Column("VALUE", lambda i: i["shown"])]
    if origin or output == "wide":
        columns.append(Column("ORIGIN", lambda i: i["origin"]))
    if as_json or output == "json":
        items = [{name: value for name, value in item.items() if name != "shown"} for item in items]
    show_items("settings", items, columns, key="name", output=output, as_json=as_json)


@app.command(cls=PlainCommand)
def check(
    file: Annotated[list[Path], typer.Argument(
        metavar="FILE", help="Replica files (JSON), settings files (TOML), scheduler files (YAML).")],
) -> None:
    """Read files as the program would, with the files they name, and say what is wrong with the first bad one."""
    from infera_cli.wiring.check import check_file

    for path in file:
        console.data(f"{path}: {check_file(path)}")
