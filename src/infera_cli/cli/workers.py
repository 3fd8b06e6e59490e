"""`infera workers`: the live fleet of a running server."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from infera_cli.cli.console import console
from infera_cli.cli.groups import PlainCommand, noun
from infera_cli.cli.options import settings_of
from infera_cli.cli.output import Column, Json, Output, show
from infera_cli.cli.servers import target, worker_names
from infera_cli.config.settings import ClientSettings

app = noun("List the workers of a running server, drain and restore them.")

Name = Annotated[str, typer.Argument(metavar="WORKER", help="Name of a worker, or how it begins.",
                                     autocompletion=worker_names)]

def _state(worker: Any) -> str:
    if worker.get("draining"):
        return "draining"
    return "ready" if worker.get("ready") else "not ready"


COLUMNS = (
    Column("WORKER", lambda w: w.get("worker_id")),
    Column("STATE", _state),
    Column("MODELS", lambda w: ", ".join(w.get("models") or ()) or None),
    Column("OPEN", lambda w: w.get("outstanding")),
    Column("ROUTED", lambda w: w.get("routed")),
    Column("BREAKER", lambda w: w.get("breaker")),
    Column("URL", lambda w: w.get("url")),
    Column("ENGINE", lambda w: w.get("engine") or None, wide=True),
    Column("ROLE", lambda w: w.get("disagg_mode"), wide=True),
    Column("OWNED", lambda w: w.get("owned"), wide=True),
)


@app.command("list", cls=PlainCommand)
@settings_of(ClientSettings)
def list_(typed: dict[str, Any], output: Output = "table", as_json: Json = False) -> None:
    """Every worker: its state, its models, how many requests it has open and has had."""
    from infera_cli.client import http, names, workers

    server = http.Server(**target(typed))
    found = workers.workers(server)
    names.remember(server.url, [str(worker.get("worker_id")) for worker in found], environ=os.environ)
    show("workers", found, COLUMNS, key="worker_id", output=output, as_json=as_json)


@app.command(cls=PlainCommand)
@settings_of(ClientSettings)
def drain(typed: dict[str, Any], worker: Name) -> None:
    """Give a worker no new work; what it has open goes on. Only this server knows of it."""
    from infera_cli.client import http, workers

    answer = workers.drain(http.Server(**target(typed)), worker)
    name = answer["worker_id"]
    console.data(f"{name} draining, {_open(answer)}")
    console.say(f"undo it with `infera workers restore {name}`")


@app.command(cls=PlainCommand)
@settings_of(ClientSettings)
def restore(typed: dict[str, Any], worker: Name) -> None:
    """Undo a drain."""
    from infera_cli.client import http, workers

    answer = workers.restore(http.Server(**target(typed)), worker)
    console.data(f"{answer['worker_id']} restored, {_open(answer)}")


def _open(answer: dict[str, Any]) -> str:
    count = answer.get("outstanding", 0)
    return f"{count} request{'' if count == 1 else 's'} open"
