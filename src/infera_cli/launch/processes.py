"""Starting, finding and ending the processes of a launch on whatever machine it is (rulings 14).

Everything that waits, does so by the injected clock; everything that acts, by a Machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from infera_cli.errors import FleetError, HostUnreachable, LaunchFailed
from infera_cli.launch import script
from infera_cli.launch.machine import Machine
from infera_cli.launch.plan import Launch, fallback_stop, shown, undeclared
from infera_cli.launch.replacement import Rules
from infera_cli.launch.script import Found, Identity, Wanted
from infera_cli.launch.state import Record

log = logging.getLogger("infera.launch")

_LOOK = 15.0   # seconds for a look or a signal
_POLL = 0.5    # between two looks at what should be gone
_EXIT_NOTHING_MATCHED = 1  # of pkill
_NO_PROGRAM = 127


class Net(Protocol):
    """The network as far as a launcher needs it."""

    async def accepts(self, address: str, port: int) -> bool:
        """Whether something takes connections there; anything that does still holds the port."""

    async def healthy(self, address: str, port: int) -> bool:
        """Whether `GET /health` answers 200 there."""


class Time(Protocol):
    """A monotonic clock in seconds, and the Unix time."""

    def now(self) -> float:
        """Monotonic seconds."""

    def unix(self) -> float:
        """Seconds since 1970."""

    async def sleep(self, seconds: float) -> None:
        """Let them pass."""


class Processes:
    """What runs on the machines, which are found by the name of their host entry."""

    def __init__(self, machines: Mapping[str, Machine], net: Net, time: Time, rules: Rules) -> None:
        self._machines = machines
        self._net = net
        self._time = time
        self._rules = rules

    async def start(self, launch: Launch, nonce: str) -> Identity:
        """Start it, detached. Raises LaunchFailed with what the machine said, HostUnreachable, HostRefused."""
        if await self._net.accepts(launch.address, launch.port):
            raise LaunchFailed(
                f"{launch.slot} cannot be launched: something already answers at {launch.address}:{launch.port}"
                + await self._left_there(launch)
            )
        log.info("%s: launching on %s, log %s: %s", launch.slot, launch.place, launch.log, shown(launch))
        text = script.start(
            launch.command, env=launch.env, workdir=launch.workdir, log=launch.log, record=launch.record, nonce=nonce
        )
        within = min(self._rules.command, self._rules.launch_timeout)
        output = await self._machine(launch).run(text, within=within)
        identity, code = script.started(output.text)
        if output.status == _NO_PROGRAM or code:
            raise LaunchFailed(self._failed(launch, code or output.status, output.ending))
        if output.status != 0 or identity is None:
            hint = launch.engine.explain(output.ending)
            raise LaunchFailed(f"{launch.slot} cannot be launched on {launch.place}: {output.ending}"
                               + (f" ({hint})" if hint else ""))
        return identity

    async def look(self, launch: Launch, record: Record) -> Found:
        """What runs of it. Raises HostUnreachable, HostRefused."""
        return await self._look(launch, Wanted(launch.record, record.identity, record.nonce), record.tree)

    async def is_there(self, launch: Launch, record: Record) -> bool:
        """Whether its first process runs, asked cheaply: it is asked often while it loads. Raises as `look`."""
        wanted = Wanted(launch.record, record.identity, record.nonce)
        output = await self._machine(launch).run(script.glance(wanted), within=_LOOK)
        return script.found(output.text, [wanted])[0].verified

    async def look_for(self, record: Record, launch: Launch | None) -> Found | None:
        """What runs of a record whose slot may be gone; None where its machine is not known or cannot be asked."""
        machine = self._machines.get(record.host)
        if machine is None:
            return None
        wanted = Wanted(launch.record if launch is not None else "", record.identity, record.nonce)
        try:
            output = await machine.run(script.look([wanted]), within=_LOOK)
        except FleetError as fault:
            log.warning("%s: %s", record.slot, fault.message)
            return None
        return script.found(output.text, [wanted], [record.tree])[0]

    async def healthy(self, record: Record) -> bool:
        """Whether `/health` answers 200 at its address."""
        return await self._net.healthy(record.address, record.port)

    async def tail(self, launch: Launch, lines: int = 30) -> str:
        """The last lines of its log, empty when there are none or the machine does not answer."""
        try:
            output = await self._machine(launch).run(script.tail(launch.log, launch.record, lines=lines), within=_LOOK)
        except FleetError:
            return ""
        return script.tailed(output.text)[2].rstrip()

    async def follow(self, launch: Launch, position: int | None, lines: int) -> tuple[int, str]:
        """The next piece of its log and the position behind it; the last `lines` at first.

        Raises LaunchFailed (there is no log), HostUnreachable, HostRefused.
        """
        text = script.tail(launch.log, launch.record, lines=lines, position=position)
        output = await self._machine(launch).run(text, within=_LOOK)
        if output.status != 0:
            raise LaunchFailed(f"{launch.slot} on {launch.place}: {output.ending}")
        begin, size, piece = script.tailed(output.text)
        return (size if position is None else begin + len(piece.encode())), piece

    async def end(self, launch: Launch, record: Record) -> str | None:
        """Stop it and wait until port and processes are gone; what is left in words, None when nothing is.

        A user's stop command, or where no process is known `pkill` by port; else TERM to the group, and KILL after
        the grace. Never raises for a machine that does not answer: that is what is left, too.
        """
        try:
            found = await self.look(launch, record)
            handed_on = record.identity is None or found.exit_code == 0
            if launch.stop_command or (not found.tree and handed_on):
                await self._stop_by_command(launch, record)
            elif found.tree:
                await self._signal(launch, "TERM", found, record.identity)
            left = await self._gone(launch, record, self._rules.grace)
            if left is not None and left.tree:
                log.warning("%s: process %s outlived %g s, killing it", launch.slot, left.pids, self._rules.grace)
                await self._signal(launch, "KILL", left, record.identity)
                left = await self._gone(launch, record, self._rules.kill_wait, strike=True)
        except FleetError as fault:
            process = f", process {record.identity.pid} may still run there" if record.identity else ""
            return f"{fault.message.rstrip('.')}{process}"
        if left is None:
            return None
        if left.tree:
            return f"process {left.pids} on {launch.place} does not end"
        return f"nothing of it runs any more, but something still answers at {record.address}:{record.port}"

    async def end_orphan(self, record: Record) -> str | None:
        """The same for a record that no slot declares any more. Only a process that is known can be ended; of others it
        is believed that they are gone when nothing answers at their address."""
        if record.host not in self._machines or record.identity is None:
            if not await self._net.accepts(record.address, record.port):
                return None
            why = "no process of it is on record"
            if record.host not in self._machines:
                why = f"its machine {record.host!r} is not in the file; put it back, or stop it there yourself"
            return f"something answers at {record.address}:{record.port}, and {why}"
        return await self.end(undeclared(record.slot, record.host, record.place, record.address, record.port,
                                         record.devices), record)

    # ── within ───────────────────────────────────────────────────────────────────────────────────────
    def _machine(self, launch: Launch) -> Machine:
        return self._machines[launch.host]

    async def _look(self, launch: Launch, wanted: Wanted, known: tuple[str, ...] = ()) -> Found:
        output = await self._machine(launch).run(script.look([wanted]), within=_LOOK)
        return script.found(output.text, [wanted], [known])[0]

    async def _left_there(self, launch: Launch) -> str:
        """In words, which process of an earlier launch still runs on a slot that is on no record of ours."""
        recorded = (await self._look(launch, Wanted(launch.record))).recorded
        if recorded is None or not (await self._look(launch, Wanted(launch.record, recorded))).verified:
            return ""
        return f"; process {recorded.pid}, launched there by an owner with another state file, still runs"

    async def _signal(self, launch: Launch, name: str, found: Found, identity: Identity | None) -> None:
        await self._machine(launch).run(script.signal(name, found, identity), within=_LOOK)

    async def _stop_by_command(self, launch: Launch, record: Record) -> None:
        words = fallback_stop(launch, record.port)
        if not words:
            raise HostUnreachable(f"{launch.slot}: no process of it is known, and no stop_command says how to stop it")
        log.info("%s: stopping on %s: %s", launch.slot, launch.place, " ".join(words))
        output = await self._machine(launch).run(script.run(words), within=self._rules.command)
        already_gone = not launch.stop_command and output.status == _EXIT_NOTHING_MATCHED
        if output.status != 0 and not already_gone:
            log.warning("%s: %s ended with status %d: %s", launch.slot, words[0], output.status, output.ending)

    async def _gone(self, launch: Launch, record: Record, within: float, *, strike: bool = False) -> Found | None:
        """Wait until it is gone; what is left after `within` seconds, None when nothing is."""
        deadline = self._time.now() + within
        while True:
            found, accepts = await asyncio.gather(
                self.look(launch, record), self._net.accepts(record.address, record.port)
            )
            if not found.tree and not accepts:
                return None
            if self._time.now() >= deadline:
                return found
            if strike and found.tree:  # what was forked between look and signal
                await self._signal(launch, "KILL", found, record.identity)
            await self._time.sleep(_POLL)

    def _failed(self, launch: Launch, status: int, ending: str) -> str:
        hint = launch.engine.explain(ending)
        says = f": {ending}" if ending else ""
        return f"{launch.slot} on {launch.place}: {launch.command[0]} ended with status {status}{says}" + (
            f" ({hint})" if hint else ""
        )
