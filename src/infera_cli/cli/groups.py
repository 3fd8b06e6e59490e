"""Groups and commands with plain help pages, and a group that loads a command only when it is used.

Help is text for a terminal or a pipe, options under the heading of their group. Rich would draw boxes, at the
price of 70 ms on every `--help`. (Source: design.md §5–6; bench-and-cli §C2.)
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from infera_cli.errors import UsageError

WIDTH = 100
_SENTENCE = 1000    # no first sentence is as long
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": WIDTH}


class _AsTyped:
    """Stands in for the pydantic adapter that Typer builds per parameter: 120 ms, and text needs none."""

    PLAIN = (str, bool, list[str])

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as it was typed."""
        return () if value is None and param.multiple else value


class _Number:
    """Stands in for it where a number is wanted: it would take as long, and refuse in words of its own."""

    def __init__(self, kind: type[int | float], words: str) -> None:
        self._kind, self._words = kind, words

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The number that was typed. Raises UsageError."""
        if value is None:
            return None
        try:
            return self._kind(value)
        except ValueError:
            raise UsageError(f"{spelled(ctx, param)} must be {self._words}, not {_short(value)}") from None


_AS_TYPED, _WHOLE, _ANY = _AsTyped(), _Number(int, "a whole number"), _Number(float, "a number")
_TYPED = "infera_cli.typed"
_SHOWN = 24     # characters of a value that is refused


def spelled(ctx: Any, param: Any) -> str:
    """The option as the user wrote it, who may know one spelling of several; else its first."""
    typed: list[str] = ctx.meta.get(_TYPED, [])
    names = [name for name in param.opts if any(_names(word, name) for word in typed)]
    return str((names or param.opts)[0])


def _names(word: str, option: str) -> bool:
    """Whether a word of the command line is `--option`, `--option=…`, `-o` or `-o…`."""
    return word.partition("=")[0] == option or (not option.startswith("--") and word.startswith(option))


def _short(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"


class _Light:
    """Parameters of plain types are taken as they were typed, numbers are read in our words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, and remember how the options were written."""
        ctx.meta[_TYPED] = list(args)
        found: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        return found

    def get_params(self, ctx: Any) -> Any:
        """All parameters, `--help` included."""
        params = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            reader = _reader(param.type_descriptor.annotation)
            if reader is not None:
                param._runtime_param = reader  # noqa: SLF001 - without it, only slower
        return params


def _reader(kind: Any) -> Any:
    """What reads a value of `kind`; None where Typer does."""
    if kind in _AsTyped.PLAIN:
        return _AS_TYPED
    return _WHOLE if kind is int else _ANY if kind is float else None


class PlainCommand(_Light, TyperCommand):
    """A command whose options are listed by group."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then each group of options under its heading."""
        _write_params(self.get_params(ctx), ctx, formatter)


class PlainGroup(_Light, TyperGroup):
    """A noun with verbs; alone it shows its help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs, then the options."""
        self.format_commands(ctx, formatter)
        _write_params(self.get_params(ctx), ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write every verb with its whole first sentence."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(_SENTENCE)) for name, command in found
                                 if command and not command.hidden])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb, or say which one may have been meant."""
        name = args[0]
        if name.startswith("-"):
            return super().resolve_command(ctx, args)
        command = self.get_command(ctx, name)
        if command is None and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"see `{ctx.command_path} --help`"
            ctx.fail(f"no such command {name!r}; {hint}")
        return name if command else None, command, args[1:]


class Row(NamedTuple):
    """A command of the top level: where it lives, its heading, and its line in `infera --help`."""

    module: str
    panel: str
    help: str


class LazyGroup(PlainGroup):
    """The top level: knows names and one line each, and imports a command's module when it is asked for."""

    table: ClassVar[dict[str, Row]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, imported now; None for an unknown name."""
        row = self.table.get(cmd_name)
        if row is None:
            return None
        module = importlib.import_module(f"infera_cli.cli.{row.module}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write names and lines by heading, without importing anything."""
        for panel in dict.fromkeys(row.panel for row in self.table.values()):
            with formatter.section(panel):
                formatter.write_dl([(n, row.help) for n, row in self.table.items() if row.panel == panel])

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete names from the table; options as usual."""
        from typer._click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return TyperCommand.shell_complete(self, ctx, incomplete)
        return [CompletionItem(n, help=row.help) for n, row in self.table.items() if n.startswith(incomplete)]


def noun(text: str) -> typer.Typer:
    """A Typer app for a noun with several verbs."""
    app = typer.Typer(cls=PlainGroup, help=text, no_args_is_help=True, add_completion=False,
                      rich_markup_mode=None, context_settings=CONTEXT)
    app.callback()(_nothing)
    return app


def verb() -> typer.Typer:
    """A Typer app for a command that stands alone."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=CONTEXT)


def _nothing() -> None:
    """A noun alone does nothing; its callback only makes it a group."""


def _write_params(params: Sequence[Any], ctx: Any, formatter: Any) -> None:
    panels: dict[str, list[tuple[str, str]]] = {}
    for param in params:
        record = param.get_help_record(ctx)
        if record is not None:
            argument = param.param_type_name == "argument"
            panel = getattr(param, "rich_help_panel", None) or ("Arguments" if argument else "Options")
            shown = (record[0].partition(" <")[0], record[1]) if argument else record  # "WORKER <str>"
            panels.setdefault(panel, []).append(shown)
    other = panels.pop("Options", None)
    for panel, records in [*panels.items(), *([("Options", other)] if other else [])]:
        with formatter.section(panel):
            formatter.write_dl(records, col_max=34)
