"""`infera fleet scale`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from infera_cli.cli.fleet.common import (
    ROUTER,
    DrainTimeout,
    File,
    HostKeys,
    StateFile,
    Timeout,
    Wait,
    Yes,
    acting,
    confirm,
    count,
    options,
    tell,
)
from infera_cli.cli.options import settings_of
from infera_cli.config.settings import ClientSettings

if TYPE_CHECKING:
    from infera_cli.wiring.fleet_owner import Owner
    from infera_cli.wiring.fleet_verbs import Drain, Outcome

Number = Annotated[str, typer.Argument(metavar="N", help="How many replicas there should be.")]


@settings_of(ClientSettings, leave_out=("timeout",), told=ROUTER)
def scale(
    typed: dict[str, Any], file: File, replicas: Number, wait: Wait = True, timeout: Timeout = "600", yes: Yes = False,
    drain_timeout: DrainTimeout = "300", state_file: StateFile = None, ssh_host_keys: HostKeys = "strict",
) -> int:
    """Launch or stop until N replicas run. What goes first is what does not serve, then the last slots.

    With --server (or INFERA_SERVER) that router is told to drain a replica before it is stopped; other routers are not
    told. Without it, no router is: a server that launched the replica itself drains it all the same; any other replica
    gets TERM at once, and KILL after 30 s.
    """
    from infera_cli.wiring import fleet_verbs

    asked = options(file, state_file, ssh_host_keys, typed=typed, timeout=timeout)
    number = count(replicas, "N")

    async def work(owner: Owner, drain: Drain | None) -> list[Outcome]:
        going = fleet_verbs.surplus(await owner.rows(), number)
        if going:
            confirm(f"{', '.join(going)} would be stopped; go on?", yes=yes)
        return await fleet_verbs.scale(
            owner, number, drain=drain, wait=wait, within=asked.launch_timeout + 60, tell=tell
        )

    return acting(asked, typed, drain_timeout, work)
