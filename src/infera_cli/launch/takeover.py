"""Taking over what an earlier owner launched: each record is adopted, named in a warning, or dropped (§1.9)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from infera_cli.launch.adoption import Judgement, judge, named
from infera_cli.launch.plan import Launch
from infera_cli.launch.processes import Processes
from infera_cli.launch.seat import Pool, Seat
from infera_cli.launch.state import Record

log = logging.getLogger("infera.launch")


class Enter(Protocol):
    """Puts a replica into the fleet."""

    def __call__(self, record: Record, launch: Launch, *, ready: bool) -> bool:
        """False where its name or address belongs to another."""


class Takeover:
    """One reading of the records. Afterwards `orphans` are those that no slot holds, by slot."""

    def __init__(self, pool: Pool, processes: Processes, enter: Enter) -> None:
        self._pool = pool
        self._processes = processes
        self._enter = enter
        self.orphans: dict[str, Record] = {}

    async def run(self, records: Sequence[Record], failed: Mapping[str, str]) -> list[Seat]:
        """Look at all of them at once; the slots that are taken now. `failed`: see StateFile."""
        for name, why in failed.items():
            if (seat := self._pool.seat(name)) is not None:
                seat.error = why
        outcomes = await asyncio.gather(*map(self._judge, records))
        seats = [self._settle(record, outcome) for record, outcome in zip(records, outcomes, strict=True)]
        return [seat for seat in seats if seat is not None]

    async def _judge(self, record: Record) -> Judgement:
        seat = self._pool.seat(record.slot)
        launch = seat.launch if seat is not None and seat.free else None
        healthy, found = await asyncio.gather(
            self._processes.healthy(record), self._processes.look_for(record, launch)
        )
        return judge(record, launch, healthy=healthy, found=found)

    def _settle(self, record: Record, outcome: Judgement) -> Seat | None:
        seat = self._pool.seat(record.slot)
        if outcome.verdict in ("serving", "loading") and seat is not None and self._pool.owned < self._pool.ceiling:
            return self._adopt(seat, record, outcome)
        if outcome.verdict == "gone":
            log.warning("%s was on record and is dropped: %s", named(record), outcome.why)
            return None
        kind = "is suspect" if outcome.verdict == "suspect" else "is a probable orphan"
        log.warning("%s %s, and is left alone: %s", named(record), kind, outcome.why)
        if seat is not None and seat.free:
            seat.suspect, seat.record, seat.error = True, record, outcome.why
        else:
            self.orphans[record.slot] = record
        return None

    def _adopt(self, seat: Seat, record: Record, outcome: Judgement) -> Seat | None:
        serving = outcome.verdict == "serving"
        record = replace(record, identity=outcome.identity or record.identity, ready=record.ready or serving)
        if not self._enter(record, seat.launch, ready=serving):
            log.warning("%s is left alone: its name or address belongs to another worker", named(record))
            self.orphans[record.slot] = record
            return None
        seat.record, seat.drifted = record, outcome.drifted
        seat.move("adopt_serving" if serving else "adopt_loading")
        drifted = "; it was started from another file (drifted)" if outcome.drifted else ""
        log.info("%s adopted, %s%s", named(record), seat.phase, drifted)
        return seat
