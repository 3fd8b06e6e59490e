"""Options of a command, made from the settings they stand for, so that no flag is written down twice."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import typer

from infera_cli.config.catalogue import Setting, catalogue
from infera_cli.config.kinds import Switch
from infera_cli.config.later import LATER, SWITCHES, refuse

Command = Callable[..., Any]


def settings_of(
    model: type, *, leave_out: Iterable[str] = (), later: bool = False, told: Mapping[str, str] | None = None
) -> Callable[[Command], Command]:
    """Give a command one option per setting of `model`; it gets what was typed as its first argument, a dict.

    The command's own further parameters stay options of their own. With `later`, flags that this version does
    not have are accepted and refused in words (rulings 22). `told` has help texts, by setting, for commands to
    which a setting means something of its own.
    """
    rows = [row for name, row in catalogue(model).items() if name not in set(leave_out)]

    def decorate(command: Command) -> Command:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        made = [_parameter(row, (told or {}).get(row.name) or _help(row)) for row in rows]
        refused = [_refused(flag) for flag in LATER] if later else []

        def call(**given: Any) -> Any:
            typed = {row.name: given.pop(row.name) for row in rows}
            own_values = {name: value for name, value in given.items() if not name.startswith("later_")}
            return command(typed, **own_values)

        call.__doc__ = command.__doc__
        call.__name__ = command.__name__
        every = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *made, *refused)]
        call.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in every}
        return call

    return decorate


def _parameter(row: Setting, text: str) -> inspect.Parameter:
    option = typer.Option(
        None, *_flags(row), metavar=row.kind.metavar or None, help=text, rich_help_panel=row.group,
        show_default=False, autocompletion=_completion(row))
    annotation: Any = bool if isinstance(row.kind, Switch) else list[str] if row.kind.many else str
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(row.name, keyword, default=option, annotation=annotation | None)


def _flags(row: Setting) -> list[str]:
    both = f"/--no-{row.flag}" if isinstance(row.kind, Switch) and row.kind.both else ""
    return [f"--{row.flag}{both}", *(f"--{alias}" for alias in row.aliases)]


def _help(row: Setting) -> str:
    notes = [row.env]
    if row.kind.choices():
        notes.append(", ".join(row.kind.choices()))
    if not row.secret and (row.default or row.unset != "none") and row.default != ():
        notes.append(f"default: {row.shown(row.default)}")
    return f"{row.help} [{'; '.join(notes)}]"


def _completion(row: Setting) -> Callable[[], list[str]] | None:
    if not row.kind.choices():
        return None

    def complete() -> list[str]:
        return list(row.kind.choices())

    return complete


def _refused(flag: str) -> inspect.Parameter:
    def callback(value: Any) -> None:
        if value is not None and value is not False:
            raise refuse(flag)

    option = typer.Option(None, f"--{flag}", hidden=True, callback=callback, show_default=False)
    annotation: Any = bool | None if flag in SWITCHES else str | None
    name = "later_" + flag.replace("-", "_")
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=annotation)
