"""Launches, watches, replaces and stops replicas on declared slots (replica-router §1.5–1.9).

Fleet, machines, network and clock are injected. One task a slot does what is slow, so that nothing overlaps there.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from infera_cli.errors import Conflict, FleetError, HostRefused, HostUnreachable, InferaError, LaunchFailed, NotFound
from infera_cli.launch.machine import NOT_SENT
from infera_cli.launch.processes import Processes, Time
from infera_cli.launch.replacement import HOUR, Rules, may_replace
from infera_cli.launch.seat import Pool, Seat
from infera_cli.launch.state import Record, StateFile
from infera_cli.launch.table import Table
from infera_cli.launch.takeover import Takeover

log = logging.getLogger("infera.launch")

_DRAIN_POLL = 0.25


class Supervisor:
    """All slots of one replica file. `say` is told what a person should see, in a line."""

    def __init__(
        self, pool: Pool, processes: Processes, table: Table, state: StateFile, *, rules: Rules, time: Time,
        changed: Callable[[Seat, str], None] = lambda _seat, _what: None,
    ) -> None:  # fmt: skip
        self.pool = pool
        self.processes = processes
        self.rules = rules
        self._table = table
        self._state = state
        self._time = time
        self._changed = changed
        self._orphans: dict[str, Record] = {}
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._stops: dict[str, asyncio.Task[str | None]] = {}
        self._starts: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.Task[None] | None = None
        self._closing = False

    # ── launching ────────────────────────────────────────────────────────────────────────────────────
    async def launch(self, name: str | None = None) -> Seat:
        """Launch on the next free slot, or on that one; returns when the command is started.

        Goes on when the caller is cancelled. Raises Conflict (full, taken), NotFound, LaunchFailed and other
        FleetErrors; the slot is free again then.
        """
        if self._closing:
            raise Conflict("This server is stopping.")
        seat = self.pool.take(name)
        await self._begin(seat, self._launch(seat))
        return seat

    async def _begin(self, seat: Seat, work: Coroutine[Any, Any, None]) -> None:
        """A launch command that was given is seen to its end, whoever stops waiting for it."""
        task = self._starts[seat.name] = _go(work)
        task.add_done_callback(lambda _: self._starts.pop(seat.name, None))
        await asyncio.shield(task)

    async def launch_many(self, count: int) -> list[InferaError]:
        """Launch so many at once; the faults of those that failed, which are logged."""
        outcomes = await asyncio.gather(*(self.launch() for _ in range(count)), return_exceptions=True)
        faults = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for fault in faults:
            if not isinstance(fault, InferaError):
                raise fault
            log.error("launch failed: %s", fault.message)
        return [fault for fault in faults if isinstance(fault, InferaError)]

    async def _launch(self, seat: Seat) -> None:
        try:
            await self._start(seat)
        except BaseException as fault:
            seat.move("failed")
            seat.error = fault.message if isinstance(fault, InferaError) else str(fault)
            self._changed(seat, "failed")
            self._save()
            raise
        self._watch(seat, self.rules.launch_timeout)

    async def _start(self, seat: Seat) -> None:
        """Run the command and register; whatever goes wrong, nothing of it is left, or the slot is suspect."""
        launch, earlier = seat.launch, seat.record if seat.suspect else None
        seat.record = record = Record(
            slot=seat.name, host=launch.host, devices=launch.devices, address=launch.address, port=launch.port,
            place=launch.place, nonce=secrets.token_hex(8), digest=launch.digest, launched=self._time.unix(),
        )  # fmt: skip
        self._save()  # before anything runs, so that the next owner can look for it
        try:
            seat.record = replace(record, identity=await self.processes.start(launch, record.nonce))
            self._enter(seat, seat.record)
        except FleetError as fault:
            left = await self._end_if_any(seat, seat.record, fault)
            self._forget(seat, left or (seat.error or "" if earlier is not None else None))
            seat.record = earlier or seat.record
            raise
        seat.suspect, seat.drifted, seat.error, seat.down_since = False, False, None, None
        seat.move("started")
        self._changed(seat, "launched")
        self._save()

    def _enter(self, seat: Seat, record: Record) -> None:
        if not self._table.enter(record, seat.launch, ready=False):
            raise LaunchFailed(
                f"{seat.name} was started, but its name or {seat.launch.url} belongs to another worker; it is stopped"
            )

    async def _end_if_any(self, seat: Seat, record: Record, fault: FleetError) -> str | None:
        """After a failed launch: end what is certainly of this launch, and nothing by port or pattern."""
        if isinstance(fault, HostRefused) or fault.code == NOT_SENT:
            return None
        if isinstance(fault, HostUnreachable):
            return f"whether it was started is not known: {fault.message}"
        try:
            found = await self.processes.look(seat.launch, record)
        except FleetError as silent:
            return silent.message
        return await self.processes.end(seat.launch, record) if found.tree else None

    # ── watching a launch ────────────────────────────────────────────────────────────────────────────
    def _watch(self, seat: Seat, within: float) -> None:
        self._watchers[seat.name] = _go(self._until_ready(seat, within))

    async def _until_ready(self, seat: Seat, within: float) -> None:
        begun = look_next = self._time.now()
        deadline = begun + within
        while True:
            await self._time.sleep(max(0.0, min(self.rules.step, deadline - self._time.now())))
            if self._table.is_ready(seat.name):
                await self._is_ready(seat, self._time.now() - begun)
                return
            why, now = None, self._time.now()
            if now >= look_next:
                why = await self._early_end(seat)
                look_next = now + self.rules.look_every(now - begun)
            if why is None and self._time.now() >= deadline:
                why = (
                    f"it was not ready within --launch-timeout {self.rules.launch_timeout:g} s; "
                    "if the model was still loading, raise that"
                )
            if why is not None:
                await self._give_up(seat, why)
                return

    async def _is_ready(self, seat: Seat, took: float) -> None:
        log.info("%s: ready after %.1f s", seat.name, took)
        if seat.phase == "loading":
            seat.move("ready")
        await self._note_tree(seat)
        self._changed(seat, "ready")
        self._save()

    async def _note_tree(self, seat: Seat) -> None:
        """Remember its processes, so that those that outlive the first one are known for ours later."""
        if seat.record is None:
            return
        try:
            found = await self.processes.look(seat.launch, seat.record)
            seat.record = replace(seat.record, ready=True, tree=found.tree)
        except FleetError:
            seat.record = replace(seat.record, ready=True)

    async def _early_end(self, seat: Seat) -> str | None:
        """Why a launch cannot become ready any more; None while it may (a wrapper that ends well hands on)."""
        if seat.record is None:
            return None
        try:
            if await self.processes.is_there(seat.launch, seat.record):
                return None
            found = await self.processes.look(seat.launch, seat.record)
        except FleetError:
            return None
        if found.exit_code:
            return f"it ended with status {found.exit_code}"
        return None if found.alive or found.exit_code == 0 else "it was killed"

    async def _give_up(self, seat: Seat, why: str) -> None:
        told = await self.processes.tail(seat.launch)
        hint = seat.launch.engine.explain(told)
        seat.error = why + (f": {hint}" if hint else "")
        launch = seat.launch
        log.error("%s: launch failed: %s; its log is %s on %s", seat.name, seat.error, launch.log, launch.place)
        _log_lines(seat, told)
        self._watchers.pop(seat.name, None)
        await self._stopped(seat, drain=False)
        self._changed(seat, "failed")

    # ── stopping ─────────────────────────────────────────────────────────────────────────────────────
    async def stop(self, name: str, *, drain: bool = True) -> str | None:
        """Drain and stop a replica, and free its slot; what is left of it in words, None when nothing is.

        A second call joins the first. What is suspect, or an orphan on record, is ended too. Raises NotFound where
        no replica of ours has that name.
        """
        seat = self.pool.seat(name)
        if seat is None or not seat.ours:
            return await self._stop_orphan(name)
        starting = self._starts.get(name)
        if starting is not None:
            await asyncio.gather(starting, return_exceptions=True)
            if seat.free:
                raise NotFound(f"{name!r} could not be launched, there is nothing to stop.")
        left = await self._stopped(seat, drain=drain)
        if left is None:
            seat.error = None
        return left

    def is_ours(self, name: str) -> bool:
        """Whether a replica of that name was launched here and is not gone."""
        seat = self.pool.seat(name)
        return name in self._orphans or (seat is not None and seat.ours)

    @property
    def orphans(self) -> Sequence[Record]:
        """What is on record, may run, and belongs to no slot."""
        return list(self._orphans.values())

    async def _stop_orphan(self, name: str) -> str | None:
        record = self._orphans.get(name)
        if record is None:
            raise NotFound(f"There is no launched replica {name!r}.")
        left = await self.processes.end_orphan(record)
        if left is None:
            self._orphans.pop(name, None)
            self._save()
        return left

    async def _stopped(self, seat: Seat, *, drain: bool) -> str | None:
        task = self._stops.get(seat.name)
        if task is None:
            self._cancel_watch(seat)
            seat.move("stop")
            task = self._stops[seat.name] = _go(self._stop(seat, drain=drain))
            task.add_done_callback(lambda _: self._stops.pop(seat.name, None))
        return await asyncio.shield(task)

    async def _stop(self, seat: Seat, *, drain: bool) -> str | None:
        left: str | None = "stopping it failed in an unforeseen way"
        try:
            if drain:
                await self._drain(seat)
            self._table.leave(seat.name)
            left = await self._end(seat)
            if left is not None:
                log.error("%s: %s; its slot is free again, and used last", seat.name, left)
        finally:
            seat.move("gone")
            self._forget(seat, left)
            self._save()
        self._changed(seat, "stopped")
        return left

    async def _drain(self, seat: Seat) -> None:
        self._table.drain(seat.name)
        if seat.record is None or not seat.record.ready:
            return
        deadline = self._time.now() + self.rules.drain_timeout
        while (open_now := self._table.outstanding(seat.name)) > 0:
            if self._time.now() >= deadline:
                log.warning("%s: stopped with %d open requests, after --drain-timeout", seat.name, open_now)
                return
            await self._time.sleep(_DRAIN_POLL)

    async def _end(self, seat: Seat) -> str | None:
        return None if seat.record is None else await self.processes.end(seat.launch, seat.record)

    def _forget(self, seat: Seat, left: str | None) -> None:
        seat.suspect, seat.down_since, seat.drifted = left is not None, None, False
        seat.record, seat.error = (None, seat.error) if left is None else (seat.record, left)

    def _cancel_watch(self, seat: Seat) -> None:
        watcher = self._watchers.pop(seat.name, None)
        if watcher is not None and watcher is not asyncio.current_task():
            watcher.cancel()

    # ── replacing the dead ───────────────────────────────────────────────────────────────────────────
    def begin(self) -> None:
        """Look after what serves, from now on; needs a running loop."""
        self._loop = _go(self._look_after())

    async def _look_after(self) -> None:
        while True:
            await self._time.sleep(min(1.0, self.rules.health_interval))
            for seat in self.pool.seats:
                if seat.phase == "serving":
                    self._look_at(seat)

    def _look_at(self, seat: Seat) -> None:
        now = self._time.now()
        if self._table.is_ready(seat.name) or self._table.is_draining(seat.name):
            seat.down_since = None
            return
        if seat.down_since is None:
            seat.down_since = now
        elif self.rules.is_due(seat.down_since, now):
            seat.move("replace")
            self._watchers[seat.name] = _go(self._replace(seat))

    async def _replace(self, seat: Seat) -> None:
        seat.replaced = [when for when in seat.replaced if self._time.now() - when < HOUR]
        log.error("%s: down for %g s, %s", seat.name, self.rules.dwell, "replacing it")
        _log_lines(seat, await self.processes.tail(seat.launch))
        self._table.leave(seat.name)
        left = await self._end(seat)
        if not may_replace(seat.replaced, self._time.now()):
            self._abandon(seat, left, "it was replaced too often within an hour, and is left stopped")
            return
        pauses = self.rules.pauses()
        while True:
            try:
                await self._begin(seat, self._start(seat))
                break
            except FleetError as fault:
                pause = next(pauses, None)
                if pause is None:
                    self._abandon(seat, None, f"it could not be launched again: {fault.message}")
                    return
                log.warning("%s: %s; trying again in %g s", seat.name, fault.message, pause)
                await self._time.sleep(pause)
        seat.replaced.append(self._time.now())
        await self._until_ready(seat, self.rules.launch_timeout)

    def _abandon(self, seat: Seat, left: str | None, why: str) -> None:
        log.error("%s: %s", seat.name, why)
        self._watchers.pop(seat.name, None)
        seat.move("failed")
        self._forget(seat, left or (seat.error if seat.suspect else None))
        seat.error = why
        self._changed(seat, "failed")
        self._save()

    # ── adoption ─────────────────────────────────────────────────────────────────────────────────────
    async def adopt(self) -> list[Seat]:
        """Take over what an earlier owner launched; every record ends as adopted, named in a warning, or dropped."""
        takeover = Takeover(self.pool, self.processes, self._table.enter)
        adopted = await takeover.run(self._state.read(), self._state.failed())
        self._orphans = takeover.orphans
        for seat in adopted:
            if seat.phase == "loading" and seat.record is not None:
                spent = max(0.0, self._time.unix() - seat.record.launched)
                self._watch(seat, max(self.rules.step, self.rules.launch_timeout - spent))
            self._changed(seat, "adopted")
        self._save()
        return adopted

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────
    async def close(self, *, keep: bool) -> list[str]:
        """Stop everything, or keep it running for the next owner; what is left in words. Launches are awaited."""
        self._closing = True
        if self._loop is not None:
            self._loop.cancel()
        await asyncio.gather(*self._starts.values(), return_exceptions=True)
        if keep:
            await asyncio.gather(*self._stops.values(), return_exceptions=True)
            self.abandon()
            self._save()
            return []
        names = [seat.name for seat in self.pool.seats if not seat.free]
        outcomes = await asyncio.gather(*map(self.stop, names), return_exceptions=True)
        lefts = zip(names, outcomes, strict=True)
        return [f"{name}: {left}" for name, left in lefts if left is not None and not isinstance(left, NotFound)]

    def abandon(self) -> None:
        """End at once: stop nothing, leave the state file as it is."""
        tasks = [*self._watchers.values(), *self._stops.values(), *self._starts.values()]
        for task in [*tasks, *([self._loop] if self._loop is not None else [])]:
            task.cancel()

    def _save(self) -> None:
        """Replicas, suspects and orphans, and which launches failed."""
        records = [seat.record for seat in self.pool.seats if seat.record is not None]
        failed = {seat.name: seat.error or "" for seat in self.pool.seats if seat.failed}
        self._state.write([*records, *self._orphans.values()], failed)


def _log_lines(seat: Seat, told: str) -> None:
    for line in told.splitlines():
        log.error("%s | %s", seat.name, line)


def _go(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_log_unforeseen)
    return task


def _log_unforeseen(task: asyncio.Task[Any]) -> None:
    """A task that nobody awaits must not die in silence."""
    if not task.cancelled() and (fault := task.exception()) is not None and not isinstance(fault, InferaError):
        log.error("supervision failed in an unforeseen way", exc_info=fault)
