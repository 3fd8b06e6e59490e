"""Who has how many requests open: reserve → Lease → settle (design.md §4; R074, R178).

The counts live in columns, one place per worker number, so that a decision reads a whole pool in one step
of C. They can neither leak nor go negative: only a lease takes one away, and only once.
"""

from __future__ import annotations

from typing import Protocol

from infera_cli.routing.types import Worker


class Touched(Protocol):
    """The part of the pin table that the end of a request speaks to."""

    def touch(self, session: str, worker_id: str, now: float) -> None:
        """Refresh the pin of `session` if it still names `worker_id`."""


class Ledger:
    """Open and routed requests of every worker, by worker number.

    Read the columns freely, never write them. A number whose worker left is handed out again only when no
    lease is open on it, so a late settle can never touch a successor's count.
    """

    __slots__ = ("_free", "_retired", "outstanding", "routed")

    def __init__(self) -> None:
        self.outstanding: list[int] = []
        self.routed: list[int] = []
        self._free: list[int] = []
        self._retired: set[int] = set()

    def open(self) -> int:
        """A number for a new worker, both counts at zero."""
        if self._free:
            number = self._free.pop()
            self.routed[number] = 0
            return number
        self.outstanding.append(0)
        self.routed.append(0)
        return len(self.outstanding) - 1

    def close(self, number: int) -> None:
        """The worker left; its open leases settle as ever. Raises RuntimeError when already closed."""
        if number in self._retired or number in self._free:
            raise RuntimeError(f"worker number {number} is already closed")
        self._retired.add(number)
        self._free_if_idle(number)

    def reserve(self, worker: Worker, session: str | None = None, pins: Touched | None = None) -> Lease:
        """Count one request on `worker` from now until the lease is settled."""
        number = worker.number
        self.outstanding[number] += 1
        self.routed[number] += 1
        return Lease(self, worker, session, pins)

    def release(self, number: int) -> None:
        """One request fewer; only a lease calls this."""
        self.outstanding[number] -= 1
        if self._retired:
            self._free_if_idle(number)

    def _free_if_idle(self, number: int) -> None:
        if number in self._retired and not self.outstanding[number]:
            self._retired.remove(number)
            self._free.append(number)


class Lease:
    """One open request on one worker; settled exactly once."""

    __slots__ = ("_ledger", "_pins", "_session", "worker")

    rank: int | None = None
    """No rank was chosen."""

    def __init__(self, ledger: Ledger, worker: Worker, session: str | None, pins: Touched | None) -> None:
        self.worker = worker
        self._ledger: Ledger | None = ledger
        self._session = session
        self._pins = pins

    def settle(self, now: float) -> None:
        """The attempt is over: outstanding falls by one, and the session's pin is refreshed (B31, R070).

        Raises RuntimeError on a second call, and changes nothing then.
        """
        ledger = self._ledger
        if ledger is None:
            raise RuntimeError(f"the lease on {self.worker.id!r} is already settled")
        self._ledger = None
        ledger.release(self.worker.number)
        if self._session is not None and self._pins is not None:
            self._pins.touch(self._session, self.worker.id, now)
