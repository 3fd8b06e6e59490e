"""`infera fleet down`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from infera_cli.cli.fleet.common import (
    ROUTER,
    DrainTimeout,
    File,
    HostKeys,
    Names,
    StateFile,
    Yes,
    acting,
    chosen,
    confirm,
    options,
    tell,
)
from infera_cli.cli.options import settings_of
from infera_cli.config.settings import ClientSettings

if TYPE_CHECKING:
    from infera_cli.wiring.fleet_owner import Owner
    from infera_cli.wiring.fleet_verbs import Drain, Outcome

Force = Annotated[bool, typer.Option("--force", rich_help_panel="Fleet", help=(
    "Do not drain, and kill at once what does not end."))]


@settings_of(ClientSettings, leave_out=("timeout",), told=ROUTER)
def down(
    typed: dict[str, Any], file: File, names: Names = None, force: Force = False, yes: Yes = False,
    drain_timeout: DrainTimeout = "300", state_file: StateFile = None, ssh_host_keys: HostKeys = "strict",
) -> int:
    """Stop replicas, and wait until their processes and ports are gone.

    Without names that is everything on record, also what earlier versions of FILE launched and it declares no more.

    With --server (or INFERA_SERVER) that router is told to drain a replica before it is stopped; other routers are not
    told. Without it, no router is: a server that launched the replica itself drains it all the same; any other replica
    gets TERM at once, and KILL after 30 s.
    """
    from infera_cli.wiring import fleet_verbs

    asked = options(file, state_file, ssh_host_keys, typed=typed, force=force)

    async def work(owner: Owner, drain: Drain | None) -> list[Outcome]:
        rows = {str(row["slot"]): row for row in await owner.rows()}
        going = [name for name in chosen(names, list(rows)) if rows[name]["state"] != "free"]
        serving = [name for name in going if rows[name]["ready"] or rows[name]["state"] == "orphan"]
        if serving:
            confirm(f"{', '.join(serving)} {'serve' if len(serving) > 1 else 'serves'} now; stop?", yes=yes)
        return await fleet_verbs.down(owner, going, drain=drain, force=force, tell=tell)

    return acting(asked, typed, drain_timeout, work)
