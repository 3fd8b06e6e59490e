"""What the verbs of `infera fleet` share: their options, their talk, their endings."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from infera_cli.cli.console import console
from infera_cli.cli.servers import target
from infera_cli.cli.values import value_of
from infera_cli.config.kinds import Integer, Seconds
from infera_cli.config.layers import load
from infera_cli.config.settings import ClientSettings
from infera_cli.errors import (
    HostRefused,
    HostUnreachable,
    InferaError,
    NotFound,
    ServerUnreachable,
    StateLocked,
    Unauthorized,
    UsageError,
)

if TYPE_CHECKING:
    from infera_cli.wiring.fleet_owner import Options, Owner, Row
    from infera_cli.wiring.fleet_verbs import Drain, Outcome

T = TypeVar("T")
_OWN = "Fleet"

def slots_of_file(ctx: Any) -> list[str]:
    """Names for the shell to offer; empty on any trouble, and never a word about it."""
    from infera_cli.wiring.slot_names import slot_names

    try:
        return slot_names(str(ctx.params.get("file")))
    except (InferaError, OSError):
        return []


File = Annotated[str, typer.Argument(metavar="FILE", help="Replica file (JSON) with the machines under \"hosts\".")]
Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", autocompletion=slots_of_file, help=(
    "Slots, or how they begin; all if none."))]
StateFile = Annotated[str | None, typer.Option("--state-file", metavar="FILE", rich_help_panel=_OWN, help=(
    "Where launched replicas are recorded. [default: under the XDG state folder, named after FILE]"))]
HostKeys = Annotated[str, typer.Option("--ssh-host-keys", metavar="NAME", rich_help_panel=_OWN, help=(
    "strict refuses the key of a machine never seen before, accept-new notes it."))]
Timeout = Annotated[str, typer.Option("--timeout", metavar="SECONDS", rich_help_panel=_OWN, help=(
    "How long a launch may take to become ready before it is stopped."))]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", rich_help_panel=_OWN, help="Wait until replicas are ready.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", rich_help_panel=_OWN, help="Do not ask before stopping.")]
DrainTimeout = Annotated[str, typer.Option("--drain-timeout", metavar="SECONDS", rich_help_panel=_OWN, help=(
    "How long to wait for open requests at the router that --server names."))]
ROUTER = {"server": "Router that drains a replica before it is stopped. [INFERA_SERVER; default: none is told]"}
"""What --server means to the verbs that stop something; see `router`."""
AtOnce = Annotated[str, typer.Option("--max-unavailable", metavar="N", rich_help_panel=_OWN, help=(
    "How many may be down at a time."))]


def seconds(text: str, flag: str) -> float:
    """A flag's time span. Raises UsageError, ConfigError."""
    return float(value_of(Seconds(), text, flag))


def count(text: str, flag: str, low: int = 0) -> int:
    """A flag's whole number. Raises UsageError, ConfigError."""
    return int(value_of(Integer(low=low), text, flag))


def options(
    file: str, state_file: str | None, host_keys: str, *, typed: Mapping[str, Any] | None = None,
    timeout: str = "600", force: bool = False,
) -> Options:
    """What the wiring is told. Raises UsageError, ConfigError."""
    from infera_cli.wiring.fleet_owner import Options, quiet

    if host_keys not in ("strict", "accept-new"):
        raise UsageError(f"--ssh-host-keys must be strict or accept-new, not {host_keys!r}")
    quiet()
    return Options(
        file=Path(file), state_file=Path(state_file) if state_file else None, host_keys=host_keys,
        launch_timeout=seconds(timeout, "--timeout"), token=None if typed is None else target(typed)["token"],
        grace=0.0 if force else 30.0,
    )  # fmt: skip


def router(typed: Mapping[str, Any]) -> Any:
    """The router that was named, as a `Server`; None where only the default would be."""
    from infera_cli.client.http import Server

    loaded = load(ClientSettings, {**typed}, os.environ, section="client")
    return Server(**target(typed)) if loaded.given("server") else None


def tell(slot: str, what: str) -> None:
    """One line a change, the same on a terminal and in a file."""
    console.say(f"  {slot}  {what}")


_CODES = ((StateLocked, 8), (Unauthorized, 7), (HostRefused, 7), (ServerUnreachable, 6), (HostUnreachable, 6))


class _Ended(InferaError):
    """A fault with the exit code that it has here (rulings 5; bench-and-cli §C1)."""

    def __init__(self, fault: InferaError) -> None:
        super().__init__(fault.message)
        self.exit_code = next((code for kind, code in _CODES if isinstance(fault, kind)), fault.exit_code)


def running(work: Callable[[], Awaitable[T]]) -> T:
    """Run it. Raises InferaError with the exit code of this command."""
    try:
        return asyncio.run(_awaited(work))
    except InferaError as fault:
        raise _Ended(fault) from None
    except KeyboardInterrupt:
        console.say("interrupted; what was launched runs on, `infera fleet status` shows it")
        raise


def acting(
    asked: Options, typed: Mapping[str, Any], drain_timeout: str,
    work: Callable[[Owner, Drain | None], Awaitable[list[Outcome]]],
) -> int:
    """What every verb does that may stop something: find the owner, and the router that was named; the exit code."""
    from infera_cli.wiring.fleet_owner import owned

    patience, server = seconds(drain_timeout, "--drain-timeout"), router(typed)

    async def run() -> list[Outcome]:
        async with owned(asked) as owner:
            return await work(owner, await drain_at(server, owner, patience))

    return ended(running(run))


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


def chosen(given: Sequence[str] | None, names: Sequence[str]) -> list[str]:
    """The slots that were named, in full or by how they begin; all where none was. Raises NotFound."""
    from infera_cli.client.workers import resolve

    if not given:
        return list(names)
    try:
        return list(dict.fromkeys(resolve(name, names) for name in given))
    except NotFound as fault:
        raise NotFound(fault.message.replace("worker", "slot")) from None


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is stopped; nobody to ask is an error that names the flag. Raises InferaError."""
    if yes:
        return
    if not sys.stdin.isatty() or os.environ.get("INFERA_NO_INPUT"):
        raise UsageError(f"{question} Nobody can be asked here; --yes says so beforehand")
    if not typer.confirm(question, err=True):
        raise InferaError("nothing was changed")


def ended(outcomes: Sequence[Outcome], *, as_json: bool = False) -> int:
    """Say in a line how it went, as JSON where asked; the exit code."""
    from infera_cli.wiring.fleet_verbs import exit_code

    if as_json:
        rows = [{"slot": o.slot, "became": o.became, "detail": o.detail} for o in outcomes]
        console.json({"slots": rows, "ok": all(o.well for o in outcomes)})
    else:
        told: dict[str, int] = {}
        for outcome in outcomes:
            told[outcome.became] = told.get(outcome.became, 0) + 1
        console.data(", ".join(f"{number} {what}" for what, number in told.items()) or "nothing to do")
        for outcome in outcomes:
            if not outcome.well:
                console.error(f"{outcome.slot}: {outcome.detail}")
    return exit_code(outcomes)


def show_plan(rows: Sequence[Row], kept: Sequence[str], launched: Sequence[str], by: str) -> None:
    """What is about to happen, before it does; one line a slot."""
    console.say(f"{len(rows)} slots: {len(kept)} running, {len(launched)} to launch, by {by}")
    for row in rows:
        if row["slot"] in launched or row["slot"] in kept:
            action = "launch" if row["slot"] in launched else "keep  "
            console.say(f"  {row['slot']}  {action}  {row['place']}  {row['url']}")


async def drain_at(server: Any, owner: Owner, within: float) -> Drain | None:
    """What drains a slot at the router that was named; None without one. Raises ServerUnreachable."""
    if server is None:
        return None
    from infera_cli.wiring.fleet_drain import drainer, reachable

    await reachable(server)
    urls = {str(row["slot"]): str(row["url"]) for row in await owner.rows()}
    return drainer(server, urls.get, within=within, tell=tell)
