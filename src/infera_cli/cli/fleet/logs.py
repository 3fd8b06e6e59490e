"""`infera fleet logs`."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

import typer

from infera_cli.cli.fleet.common import File, HostKeys, StateFile, chosen, count, options, running, slots_of_file

Name = Annotated[str, typer.Argument(metavar="NAME", autocompletion=slots_of_file, help="Slot, or how it begins.")]
Follow = Annotated[bool, typer.Option("-f", "--follow", rich_help_panel="Output", help="Go on as it grows.")]
Lines = Annotated[str, typer.Option("-n", "--lines", metavar="N", rich_help_panel="Output", help=(
    "How many lines of the present launch to begin with."))]
_POLL = 0.5


def logs(
    file: File, name: Name, follow: Follow = False, lines: Lines = "200", state_file: StateFile = None,
    ssh_host_keys: HostKeys = "strict",
) -> None:
    """The log of a slot, wherever it is: what the launch that runs, or ran last, has written."""
    asked = options(file, state_file, ssh_host_keys)
    first = count(lines, "-n")
    running(lambda: _show(asked, name, first, follow=follow))


async def _show(asked: Any, name: str, lines: int, *, follow: bool) -> None:
    from infera_cli.wiring import fleet_owner

    async with fleet_owner.reading(asked) as (processes, launches):
        launch = launches[chosen([name], list(launches))[0]]
        position, piece = await processes.follow(launch, None, lines)
        while True:
            sys.stdout.write(piece)
            sys.stdout.flush()
            if not follow:
                return
            if not piece:
                await asyncio.sleep(_POLL)
            position, piece = await processes.follow(launch, position, 0)
