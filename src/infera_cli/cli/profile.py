"""`infera profile`: the torch profilers of workers, through a running server or straight at the engines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from infera_cli.cli.console import console
from infera_cli.cli.groups import PlainCommand, noun
from infera_cli.cli.options import settings_of
from infera_cli.cli.output import Column, Json, Output, show
from infera_cli.cli.servers import target, worker_names
from infera_cli.cli.values import value_of
from infera_cli.config.kinds import Seconds
from infera_cli.config.settings import ClientSettings
from infera_cli.errors import InferaError, UsageError

app = noun("Start and stop the torch profilers of workers.")

_CHOICE = "Which workers"
Worker = Annotated[str | None, typer.Option("--worker", metavar="NAME", help="This worker alone.",
                                            rich_help_panel=_CHOICE, autocompletion=worker_names)]
Model = Annotated[str | None, typer.Option("--model", metavar="NAME", help="Workers that serve this model.",
                                            rich_help_panel=_CHOICE)]
Role = Annotated[str | None, typer.Option("--role", metavar="ROLE", help="mixed, prefill or decode.",
                                          rich_help_panel=_CHOICE)]
Engine = Annotated[list[str] | None, typer.Option("--engine", metavar="URL", rich_help_panel=_CHOICE,
                                           help="Ask this engine itself, without a server; repeat for more.")]
Prefix = Annotated[str | None, typer.Option("--prefix", metavar="TEXT", help="How the names of the traces begin.")]
Folder = Annotated[str | None, typer.Option("--output-dir", metavar="DIR",
                                            help="Folder for the traces, where the engine lets the caller choose.")]
Duration = Annotated[str | None, typer.Option("--duration", metavar="SECONDS",
                                              help="Stop again after so long; Ctrl-C stops at once.")]

COLUMNS = (
    Column("WORKER", lambda r: r.get("worker_id")),
    Column("DONE", lambda r: r.get("ok")),
    Column("STATUS", lambda r: r.get("status_code")),
    Column("DETAIL", lambda r: str(r.get("detail") or "") or None),
    Column("TRACES", lambda r: r.get("traces")),
    Column("URL", lambda r: r.get("url"), wide=True),
)


@app.command(cls=PlainCommand)
@settings_of(ClientSettings)
def start(
    typed: dict[str, Any], worker: Worker = None, model: Model = None, role: Role = None, engine: Engine = None,
    prefix: Prefix = None, output_dir: Folder = None, duration: Duration = None, output: Output = "table",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Start the profilers; with --duration, stop them again and say where the traces lie."""
    seconds = _seconds(duration)
    body = {name: value for name, value in (("profile_prefix", prefix), ("output_dir", output_dir)) if value}
    chosen = {"worker_id": worker, "model": model, "role": role}
    results = _ask("start", typed, engine, chosen, body)
    if seconds is None:
        _show(results, output, as_json=as_json)
        return
    if any(result.get("ok") for result in results):
        _wait(seconds)
        started = {str(result.get("worker_id")) for result in results if result.get("ok")}
        results = [r for r in _ask("stop", typed, engine, chosen, body) if str(r.get("worker_id")) in started]
    _show(results, output, as_json=as_json)


@app.command(cls=PlainCommand)
@settings_of(ClientSettings)
def stop(
    typed: dict[str, Any], worker: Worker = None, model: Model = None, role: Role = None, engine: Engine = None,
    output: Output = "table", as_json: Json = False,
) -> None:  # fmt: skip
    """Stop the profilers; engines answer when their traces are written."""
    _show(_ask("stop", typed, engine, {"worker_id": worker, "model": model, "role": role}, {}), output, as_json=as_json)


def _ask(
    action: Any, typed: Mapping[str, Any], engines: list[str] | None, chosen: Mapping[str, str | None],
    body: dict[str, Any],
) -> list[dict[str, Any]]:
    from infera_cli.client import http, profile

    if engines and any(chosen.values()):
        raise UsageError("--engine names the engines; --worker, --model and --role choose among a server's workers")
    seconds = profile.SECONDS[action]
    if engines:
        results = profile.straight([http.Server(url, timeout=seconds) for url in engines], action, body)
    else:
        where = target(typed)
        server = http.Server(where["url"], token=where["token"], timeout=max(seconds, where["timeout"]))
        results = profile.through(server, action, chosen, body)
    return [
        {**result, "traces": profile.place_of(result, body) if action == "stop" and result.get("ok") else None}
        for result in results
    ]


def _seconds(given: str | None) -> float | None:
    return None if given is None else float(value_of(Seconds(), given, "--duration"))


def _wait(seconds: float) -> None:
    console.say(f"profiling for {seconds:g} s")
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        console.say("stopping")


def _show(results: list[dict[str, Any]], output: str, *, as_json: bool) -> None:
    show("results", results, COLUMNS, key="worker_id", output=output, as_json=as_json)
    failed = [str(result.get("worker_id")) for result in results if not result.get("ok")]
    if failed:
        raise InferaError(f"{len(failed)} of {len(results)} workers did not: {', '.join(failed)}")
