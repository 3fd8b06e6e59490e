"""`infera sessions`: conversations that lost their place in the cache, and why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from infera_cli.cli.groups import PlainCommand, verb
from infera_cli.cli.options import settings_of
from infera_cli.cli.output import Column, Json, Output, show
from infera_cli.cli.servers import target
from infera_cli.config.settings import ClientSettings

app = verb()


def _time(row: Any) -> str | None:
    at = row.get("at")
    if not isinstance(at, (int, float)):
        return None
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


COLUMNS = (
    Column("SESSION", lambda r: r.get("session")),
    Column("TURN", lambda r: r.get("turn")),
    Column("FIRST DIFFERENCE", lambda r: r.get("part")),
    Column("TOKENS LOST", lambda r: r.get("tokens_lost")),
    Column("TIMES", lambda r: r.get("times")),
    Column("TOKENS AGAIN", lambda r: r.get("tokens_again"), wide=True),
    Column("AT", _time, wide=True),
)


@app.command(cls=PlainCommand)
@settings_of(ClientSettings)
def sessions(typed: dict[str, Any], *, output: Output = "table", as_json: Json = False) -> None:
    """Sessions whose prompt no longer begins as it did, so that the cache is of no use to it.

    The first part that differs is named: the first line of the system text, the tools, the system text, or a
    message of the history. Needs a server with --router-policy kv-aware.

    \b
    infera sessions
    infera sessions -o json
    """
    from infera_cli.client.http import Server
    from infera_cli.client.sessions import sessions as ask

    show("sessions", ask(Server(**target(typed))), COLUMNS, key="session", output=output, as_json=as_json)
