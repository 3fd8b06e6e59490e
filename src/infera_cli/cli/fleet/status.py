"""`infera fleet status`."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import typer

from infera_cli.cli.fleet.common import File, HostKeys, StateFile, options, running
from infera_cli.cli.output import Column, Json, Output, show

COLUMNS = (
    Column("SLOT", lambda row: row["slot"]),
    Column("STATE", lambda row: row["state"] + (" (drifted)" if row["drifted"] and row["state"] != "orphan" else "")),
    Column("PLACE", lambda row: row["place"]),
    Column("URL", lambda row: row["url"]),
    Column("DEVICES", lambda row: ",".join(map(str, row["devices"]))),
    Column("PID", lambda row: row["pid"]),
    Column("UP", lambda row: _age(row["launched"])),
    Column("ENGINE", lambda row: row["engine"], wide=True),
    Column("LOG", lambda row: row["log"], wide=True),
    Column("ERROR", lambda row: " ".join(str(row["error"]).split()) if row["error"] else None),
)
Watch = Annotated[bool, typer.Option("--watch", "-w", rich_help_panel="Output", help="Again every two seconds.")]


def status(
    file: File, state_file: StateFile = None, ssh_host_keys: HostKeys = "strict", watch: Watch = False,
    output: Output = "table", as_json: Json = False,
) -> None:
    """What runs on each slot. A machine that does not answer makes its slots unknown, not dead.

    drifted: what runs was started from another version of the file. orphan: on record, and no slot declares it.
    """
    asked = options(file, state_file, ssh_host_keys)
    while True:
        rows = running(lambda: _rows(asked))
        show("slots", rows, COLUMNS, key="slot", output=output, as_json=as_json)
        if not watch:
            return
        running(lambda: asyncio.sleep(2.0))


async def _rows(asked: Any) -> list[dict[str, Any]]:
    from infera_cli.wiring import fleet_owner

    async with fleet_owner.seen(asked) as (rows, _processes, _launches):
        return [dict(row) for row in rows]


def _age(launched: Any) -> str | None:
    if not launched:
        return None
    spent = max(0, int(time.time() - float(launched)))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if spent >= size:
            return f"{spent // size}{unit}"
    return f"{spent}s"
