"""`infera requests`: what happened to the last requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from infera_cli.cli.groups import PlainCommand, verb
from infera_cli.cli.options import settings_of
from infera_cli.cli.output import Column, Json, Output, show
from infera_cli.cli.servers import target, worker_names
from infera_cli.cli.values import value_of
from infera_cli.config.kinds import Integer, Seconds
from infera_cli.config.settings import ClientSettings

app = verb()


def _time(request: Any) -> str | None:
    started = request.get("started")
    if not isinstance(started, (int, float)):
        return None
    return datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _span(key: str, factor: float = 1) -> Any:
    def cell(request: Any) -> float | None:
        value = request.get(key)
        return None if value is None else value * factor

    return cell


def _tokens(request: Any) -> str | None:
    tokens = request.get("tokens") or {}
    counts = [tokens.get(name) for name in ("prompt", "cached", "completion")]
    return "/".join("?" if n is None else str(n) for n in counts) if tokens else None


COLUMNS = (
    Column("STARTED", _time),
    Column("STATUS", lambda r: r.get("status")),
    Column("OUTCOME", lambda r: r.get("outcome")),
    Column("WORKER", lambda r: r.get("worker")),
    Column("WHY", lambda r: r.get("why") or None),
    Column("FIRST BYTE", _span("first_byte")),
    Column("TOTAL", _span("total")),
    Column("RETRIES", lambda r: r.get("retries")),
    Column("SESSION", lambda r: r.get("session")),
    Column("ID", lambda r: r.get("id")),
    Column("MODEL", lambda r: r.get("model"), wide=True),
    Column("PATH", lambda r: r.get("path"), wide=True),
    Column("QUEUE MS", _span("queue", 1000), wide=True),
    Column("PICK MS", _span("pick", 1000), wide=True),
    Column("CONNECT MS", _span("connect", 1000), wide=True),
    Column("UPSTREAM MS", _span("upstream", 1000), wide=True),
    Column("CHUNKS", lambda r: r.get("chunks"), wide=True),
    Column("TOKENS IN/CACHED/OUT", _tokens, wide=True),
    Column("ERROR", lambda r: r.get("error"), wide=True),
)

Slow = Annotated[str | None, typer.Option(metavar="SECONDS", help="Only those that took at least this long.")]
Worker = Annotated[str | None, typer.Option(metavar="WORKER", help="Only those that this worker served.",
                                            autocompletion=worker_names)]
Session = Annotated[str | None, typer.Option(metavar="ID", help="Only those of this session.")]
Status = Annotated[str | None, typer.Option(
    metavar="STATUS", help="Only those with this code (503), class (5xx) or outcome (broken).")]
Limit = Annotated[str, typer.Option("-n", "--limit", metavar="N", help="At most so many, 1 to 10000.")]


@app.command(cls=PlainCommand)
@settings_of(ClientSettings)
def requests(
    typed: dict[str, Any], *, slow: Slow = None, worker: Worker = None, session: Session = None,
    status: Status = None, limit: Limit = "20", output: Output = "table", as_json: Json = False,
) -> None:
    """The last requests, newest first: who served them, why, and how long each step took.

    \b
    infera requests --slow 2s
    infera requests --status 5xx -o json
    """
    from infera_cli.client.http import Server
    from infera_cli.client.requests import requests as ask

    least = None if slow is None else value_of(Seconds(zero=True), slow, "--slow")
    most = value_of(Integer(low=1, high=10_000), limit, "--limit")
    server = Server(**target(typed))
    found = ask(server, slow=least, worker=worker, session=session, status=status, limit=most)
    show("requests", found, COLUMNS, key="id", output=output, as_json=as_json)
