"""The slots of this router and who sits on them: one table of moves, one rule of allocation (replica-router §1.3).

An illegal move raises IllegalMove and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from infera_cli.errors import Conflict, IllegalMove, NotFound
from infera_cli.launch.plan import Launch
from infera_cli.launch.state import Record

Phase = Literal["free", "starting", "loading", "serving", "replacing", "stopping"]
"""starting: its command runs; loading: registered, never ready; serving: has been ready, and may be down now;
replacing: it died, and its successor is on the way; stopping: drains, or ends."""

Move = Literal["take", "started", "failed", "adopt_loading", "adopt_serving", "ready", "replace", "stop", "gone"]

MOVES: dict[tuple[Phase, Move], Phase] = {
    ("free", "take"): "starting",
    ("free", "adopt_loading"): "loading",
    ("free", "adopt_serving"): "serving",
    ("free", "stop"): "stopping",
    ("starting", "started"): "loading",
    ("starting", "failed"): "free",
    ("loading", "ready"): "serving",
    ("loading", "stop"): "stopping",
    ("serving", "stop"): "stopping",
    ("serving", "replace"): "replacing",
    ("replacing", "started"): "loading",
    ("replacing", "failed"): "free",
    ("replacing", "stop"): "stopping",
    ("stopping", "gone"): "free",
}


class Seat:
    """One slot, and what is on it.

    `suspect`: something may still run there that could not be stopped or asked; such a slot is used last.
    `drifted`: what runs was started from another file. `error` is the last trouble, for people.
    """

    __slots__ = ("down_since", "drifted", "error", "launch", "phase", "record", "replaced", "suspect")

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.phase: Phase = "free"
        self.record: Record | None = None
        self.suspect = False
        self.drifted = False
        self.error: str | None = None
        self.down_since: float | None = None
        self.replaced: list[float] = []

    def __repr__(self) -> str:
        return f"Seat({self.name!r}, {self.phase})"

    @property
    def name(self) -> str:
        """The slot's name, which is its replica's name too."""
        return self.launch.slot

    @property
    def free(self) -> bool:
        """Nothing of ours is on it."""
        return self.phase == "free"

    @property
    def ours(self) -> bool:
        """Something of ours is on it, or may be."""
        return not self.free or self.suspect

    @property
    def failed(self) -> bool:
        """Free, because its last launch failed."""
        return self.free and not self.suspect and self.error is not None

    def move(self, move: Move) -> None:
        """Go on as the table says."""
        after = MOVES.get((self.phase, move))
        if after is None:
            raise IllegalMove(f"{self.name}: nothing that is {self.phase} can {move}")
        self.phase = after


class Pool:
    """All slots in the order they are filled, and at most `ceiling` of them taken."""

    def __init__(self, launches: Sequence[Launch], ceiling: int) -> None:
        self.seats = tuple(Seat(launch) for launch in launches)
        self.ceiling = min(ceiling, len(self.seats))
        self._by_name = {seat.name: seat for seat in self.seats}

    def seat(self, name: str) -> Seat | None:
        """The slot of that name."""
        return self._by_name.get(name)

    @property
    def owned(self) -> int:
        """How many are taken, those that are starting or stopping included."""
        return sum(not seat.free for seat in self.seats)

    @property
    def free(self) -> list[Seat]:
        """Free ones in the order they would be taken: suspects last (B11)."""
        return sorted((seat for seat in self.seats if seat.free), key=lambda seat: seat.suspect)

    def take(self, name: str | None = None) -> Seat:
        """Choose a free slot, or that one, and mark it in the same breath (A31). Raises Conflict, NotFound."""
        if name is not None and name not in self._by_name:
            raise NotFound(f"There is no slot {name!r}.")
        if self.owned >= self.ceiling:
            raise Conflict(f"All {self.ceiling} replicas that may be launched are launched.")
        choice = [seat for seat in self.free if name in (None, seat.name)]
        if not choice:
            raise Conflict(f"Slot {name!r} is taken.")
        choice[0].move("take")
        return choice[0]

    def replan(self, launches: Sequence[Launch]) -> list[str]:
        """Take the commands of another reading of the file for what is launched from now on.

        Returns the slots that came, went or moved: those stay as they were.
        """
        fresh = {launch.slot: launch for launch in launches}
        left_out = sorted(fresh.keys() ^ self._by_name.keys())
        for seat in self.seats:
            launch = fresh.get(seat.name)
            if launch is None:
                continue
            if _place(launch) != _place(seat.launch):
                left_out.append(seat.name)
                continue
            seat.launch = launch
            record = seat.record
            seat.drifted = not seat.free and record is not None and record.digest not in (None, launch.digest)
        return left_out


def _place(launch: Launch) -> tuple[object, ...]:
    return launch.host, launch.place, launch.address, launch.port, launch.devices
