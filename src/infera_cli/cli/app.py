"""The root of the command line: joins the commands, and turns whatever happens into an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from infera_cli import __version__
from infera_cli.cli.console import console
from infera_cli.cli.failures import refuse, tell
from infera_cli.cli.groups import CONTEXT, LazyGroup, Row
from infera_cli.config.near import near
from infera_cli.errors import InferaError

_RUN, _LOOK, _SETUP = "Run", "Look", "Set up"


class Root(LazyGroup):
    """Every command of this version."""

    table = {  # noqa: RUF012 - a constant of the class
        "demo": Row("demo", _RUN, "Simulated engines, a router and some traffic; needs nothing."),
        "serve": Row("serve", _RUN, "One OpenAI- and Anthropic-compatible address in front of engines."),
        "launch": Row("launch", _RUN, "One engine on this machine, registered in discovery and drained at its end."),
        "bench": Row("bench", _RUN, "Load an address, measure it, and say whether the numbers can be trusted."),
        "simulate": Row("simulate", _RUN, "Replay a load against simulated engines: which policy, how many replicas."),
        "fleet": Row("fleet", _RUN, "Launch, watch and stop replicas on declared machines, here and over SSH."),
        "workers": Row("workers", _LOOK, "List the workers of a running server, drain and restore them."),
        "requests": Row("requests", _LOOK, "Show what happened to the last requests."),
        "sessions": Row("sessions", _LOOK, "Show conversations that lost their place in the cache, and why."),
        "record": Row("record", _LOOK, "Record what a server serves as a trace, without what is said."),
        "explain": Row("explain", _LOOK, "Show where a request would go, and why."),
        "profile": Row("profile", _LOOK, "Start and stop the torch profilers of workers."),
        "prewarm": Row("prewarm", _LOOK, "Have a prefix in the cache before it is asked for."),
        "config": Row("config", _SETUP, "Show the settings and their origins, check files."),
        "completion": Row("completion", _SETUP, "Print the completion script of a shell."),
        "version": Row("version", _SETUP, "Show the version of infera and what it runs on."),
    }


app = typer.Typer(cls=Root, rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=CONTEXT,
                  epilog="Start with `infera demo`. `infera COMMAND --help` says more about each.")


def _version(value: bool) -> None:
    if value:
        console.data(f"infera {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    _: Annotated[bool, typer.Option("--version", help="Print the version and leave.", is_eager=True,
                                    callback=_version)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks. [INFERA_DEBUG]")] = False,
) -> None:
    """One address in front of your LLM engines."""
    console.debug = console.debug or debug
    if ctx.invoked_subcommand is None and not ctx.resilient_parsing:
        console.data(ctx.get_help())


def command() -> Any:
    """The whole command line as one object.

    Typer's own two completion options are left out: they guess the shell from the parent process, which fails
    in containers (R185); `infera completion SHELL` takes their place.
    """
    group = typer.main.get_command(app)
    group.params = [p for p in group.params if p.name not in ("install_completion", "show_completion")]
    return group


def run(argv: Sequence[str]) -> int:
    """Run one command line and answer its exit code (rulings 5)."""
    try:
        return int(command()(args=list(argv), prog_name="infera", standalone_mode=False) or 0)
    except InferaError as fault:
        return tell(fault, argv)
    except TyperException as fault:
        return _usage(fault, argv)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except (BrokenPipeError, SystemExit) as end:
        return _unread(end)
    except Exception as fault:  # noqa: BLE001 - the last border: nobody should see a traceback they did not ask for
        console.crash(fault)
        return 1


def _unread(end: BrokenPipeError | SystemExit) -> int:
    """Whoever read our output has seen enough, as `head` does: that is no failure, though Typer makes it one."""
    if isinstance(end, SystemExit) and not isinstance(end.__context__, BrokenPipeError):
        raise end
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _usage(fault: TyperException, argv: Sequence[str]) -> int:
    """What Typer has to say about the command line, in our form."""
    if type(fault).__name__ == "NoArgsIsHelpError":
        console.say(fault.format_message())
        return fault.exit_code
    return refuse(_sentence(fault), fault.exit_code, argv)


def _sentence(fault: TyperException) -> str:
    context: Any = getattr(fault, "ctx", None)
    if type(fault).__name__ == "NoSuchOption":
        return _no_such_option(fault.message, getattr(fault, "option_name", ""), context)
    text = _lower(fault.format_message().rstrip("."))
    return f"{text}; see `{context.command_path} --help`" if context and ";" not in text else text


def _no_such_option(message: str, option: str, context: Any) -> str:
    meant = near(option, _options(context)) if context else []
    where = f"`{context.command_path} --help`" if context else "--help"
    hint = f"did you mean {' or '.join(meant)}?" if meant else f"see {where}"
    return f"{_lower(message.rstrip('.'))}; {hint}"


def _options(context: Any) -> list[str]:
    """Every option that help shows for the command."""
    params = [param for param in context.command.get_params(context) if not getattr(param, "hidden", False)]
    return [name for param in params for name in (*param.opts, *param.secondary_opts) if name.startswith("--")]


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
