"""`infera fleet up`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infera_cli.cli.console import console
from infera_cli.cli.fleet.common import (
    File,
    HostKeys,
    StateFile,
    Timeout,
    Wait,
    count,
    ended,
    options,
    running,
    show_plan,
    tell,
)
from infera_cli.cli.options import settings_of
from infera_cli.cli.output import FORMATS
from infera_cli.config.settings import ClientSettings
from infera_cli.errors import UsageError

if TYPE_CHECKING:
    from infera_cli.wiring.fleet_verbs import Outcome

Number = Annotated[str | None, typer.Option("-n", "--replicas", metavar="N", rich_help_panel="Fleet", help=(
    "How many replicas there should be. [default: all slots]"))]
DryRun = Annotated[bool, typer.Option("--dry-run", rich_help_panel="Fleet", help="Show the plan and change nothing.")]
Format = Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help="table or json.",
                                     autocompletion=lambda: list(FORMATS), rich_help_panel="Output")]


@settings_of(ClientSettings, leave_out=("server", "timeout"))
def up(
    typed: dict[str, Any], file: File, replicas: Number = None, dry_run: DryRun = False, wait: Wait = True,
    timeout: Timeout = "600", state_file: StateFile = None, ssh_host_keys: HostKeys = "strict",
    output: Format = "table",
) -> int:
    """Launch what is missing: shows the plan, launches all at once, keeps what works.

    \b
    infera fleet up fleet.json --dry-run
    infera fleet up fleet.json -n 4

    Exit codes: 0 all ready, 3 some, 1 none, 5 not in time, 6 unreachable, 7 refused, 8 the state file is held.
    """
    from infera_cli.wiring import fleet_owner, fleet_verbs

    if output not in ("table", "json"):
        raise UsageError(f"-o must be table or json, not {output!r}")
    wanted = None if replicas is None else count(replicas, "-n")
    asked = options(file, state_file, ssh_host_keys, typed=typed, timeout=timeout)
    if dry_run:
        return running(lambda: _dry_run(asked, wanted, output))

    async def work() -> list[Outcome]:
        async with fleet_owner.owned(asked) as owner:
            rows = await owner.rows()
            kept, launched = fleet_verbs.plan_up(rows, wanted)
            show_plan(rows, kept, launched, owner.name)
            outcomes = await fleet_verbs.up(owner, wanted, wait=wait, within=asked.launch_timeout + 60, tell=tell)
            if isinstance(owner, fleet_owner.Standalone) and fleet_verbs.exit_code(outcomes) == 0:
                state = shlex.quote(str(fleet_owner.state_path(asked)))
                console.say(f"next: infera serve --replicas {shlex.quote(file)} --state-file {state}")
            return outcomes

    return ended(running(work), as_json=output == "json")


async def _dry_run(asked: Any, wanted: int | None, output: str) -> int:
    from infera_cli.wiring import fleet_owner, fleet_verbs

    async with fleet_owner.seen(asked) as (rows, _processes, launches):
        kept, launched = fleet_verbs.plan_up(rows, wanted)
        plan = [
            {"slot": name, "action": "launch" if name in launched else "keep", "place": launches[name].place,
             "url": launches[name].url, "devices": list(launches[name].devices), "log": launches[name].log,
             "command": fleet_owner.command_line(launches[name])}
            for name in launches if name in kept or name in launched
        ]  # fmt: skip
    if output == "json":
        console.json({"plan": plan})
        return 0
    console.table(["SLOT", "ACTION", "PLACE", "URL", "DEVICES", "COMMAND"], [
        [str(p["slot"]), str(p["action"]), str(p["place"]), str(p["url"]),
         ",".join(map(str, launches[str(p["slot"])].devices)), str(p["command"])] for p in plan
    ])  # fmt: skip
    return 0
