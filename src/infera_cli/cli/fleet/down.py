"""`infera fleet down`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from infera_cli.cli.console import console
from infera_cli.cli.fleet.common import (
    DrainTimeout,
    File,
    HostKeys,
    Names,
    StateFile,
    Yes,
    chosen,
    confirm,
    drain_at,
    ended,
    options,
    router,
    running,
    seconds,
    tell,
)
from infera_cli.cli.options import settings_of
from infera_cli.config.settings import ClientSettings

if TYPE_CHECKING:
    from infera_cli.wiring.fleet_verbs import Outcome

Force = Annotated[bool, typer.Option("--force", rich_help_panel="Fleet", help=(
    "Do not drain, and kill at once what does not end."))]


@settings_of(ClientSettings, leave_out=("timeout",))
def down(
    typed: dict[str, Any], file: File, names: Names = None, force: Force = False, yes: Yes = False,
    drain_timeout: DrainTimeout = "300", state_file: StateFile = None, ssh_host_keys: HostKeys = "strict",
) -> int:
    """Stop replicas, and wait until their processes and ports are gone.

    With --server (or INFERA_SERVER) that router is told to drain them first; other routers are not told.
    """
    from infera_cli.wiring import fleet_owner, fleet_verbs

    asked = options(file, state_file, ssh_host_keys, typed=typed, force=force)
    patience, server = seconds(drain_timeout, "--drain-timeout"), router(typed)

    async def work() -> list[Outcome]:
        async with fleet_owner.owned(asked) as owner:
            rows = {str(row["slot"]): row for row in await owner.rows()}
            going = [name for name in chosen(names, list(rows)) if rows[name]["state"] != "free"]
            serving = [name for name in going if rows[name]["ready"]]
            if serving:
                confirm(f"{', '.join(serving)} serve now; stop them?", yes=yes)
            drain = await drain_at(server, owner, patience)
            outcomes = await fleet_verbs.down(
                owner, [name for name in going if rows[name]["state"] != "unknown"], drain=drain, force=force, tell=tell
            )
            unknown = [name for name in going if rows[name]["state"] == "unknown"]
            lefts = await owner.stop_unknown() if unknown else []
            for left in lefts:
                console.warn(left)
            return [*outcomes, *(fleet_verbs.Outcome(name, "failed" if lefts else "stopped",
                                                     "; ".join(lefts)) for name in unknown)]

    return ended(running(work))
