"""`infera fleet restart`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infera_cli.cli.fleet.common import (
    AtOnce,
    DrainTimeout,
    File,
    HostKeys,
    Names,
    StateFile,
    Timeout,
    chosen,
    count,
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


@settings_of(ClientSettings, leave_out=("timeout",))
def restart(
    typed: dict[str, Any], file: File, names: Names = None, max_unavailable: AtOnce = "1", timeout: Timeout = "600",
    drain_timeout: DrainTimeout = "300", state_file: StateFile = None, ssh_host_keys: HostKeys = "strict",
) -> int:
    """Stop and launch replicas again, one after the other; the next only when the last is ready."""
    from infera_cli.wiring import fleet_owner, fleet_verbs

    asked = options(file, state_file, ssh_host_keys, typed=typed, timeout=timeout)
    at_once, patience = count(max_unavailable, "--max-unavailable", 1), seconds(drain_timeout, "--drain-timeout")
    server = router(typed)

    async def work() -> list[Outcome]:
        async with fleet_owner.owned(asked) as owner:
            rows = await owner.rows()
            running_now = [str(row["slot"]) for row in rows if row["state"] not in ("free", "unknown", "orphan")]
            wanted = chosen(names, [str(row["slot"]) for row in rows]) if names else running_now
            drain = await drain_at(server, owner, patience)
            return await fleet_verbs.restart(
                owner, wanted, at_once=at_once, drain=drain, within=asked.launch_timeout + 60, tell=tell
            )

    return ended(running(work))
