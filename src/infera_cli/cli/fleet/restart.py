"""`infera fleet restart`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infera_cli.cli.fleet.common import (
    ROUTER,
    AtOnce,
    DrainTimeout,
    File,
    HostKeys,
    Names,
    StateFile,
    Timeout,
    acting,
    chosen,
    count,
    options,
    tell,
)
from infera_cli.cli.options import settings_of
from infera_cli.config.settings import ClientSettings

if TYPE_CHECKING:
    from infera_cli.wiring.fleet_owner import Owner
    from infera_cli.wiring.fleet_verbs import Drain, Outcome


@settings_of(ClientSettings, leave_out=("timeout",), told=ROUTER)
def restart(
    typed: dict[str, Any], file: File, names: Names = None, max_unavailable: AtOnce = "1", timeout: Timeout = "600",
    drain_timeout: DrainTimeout = "300", state_file: StateFile = None, ssh_host_keys: HostKeys = "strict",
) -> int:
    """Stop and launch replicas again, one after the other; the next only when the last is ready.

    With --server (or INFERA_SERVER) that router is told to drain a replica before it is stopped; other routers are not
    told. Without it, no router is: a server that launched the replica itself drains it all the same; any other replica
    gets TERM at once, and KILL after 30 s.
    """
    from infera_cli.wiring import fleet_verbs

    asked = options(file, state_file, ssh_host_keys, typed=typed, timeout=timeout)
    at_once = count(max_unavailable, "--max-unavailable", 1)

    async def work(owner: Owner, drain: Drain | None) -> list[Outcome]:
        rows = await owner.rows()
        wanted = chosen(names, [str(row["slot"]) for row in rows]) if names else fleet_verbs.taken(rows)
        return await fleet_verbs.restart(
            owner, wanted, at_once=at_once, drain=drain, within=asked.launch_timeout + 60, tell=tell
        )

    return acting(asked, typed, drain_timeout, work)
