"""Which worker a session went to last (replica-router §1.10).

Pins are kept in order of use, so the front is always the one that expires, or is given up, next.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MINTED: Final = "minted:"
_NAMED: Final = "session:"
PINS_KEPT = 100_000
"""More sessions than this are not remembered (replica-router §1.1; A4)."""


class _Pin:
    """Which worker, when it was last seen, and how many requests are open."""

    __slots__ = ("held", "seen", "worker")

    def __init__(self, worker: str, seen: float, held: int) -> None:
        self.worker = worker
        self.seen = seen
        self.held = held


class Pins:
    """Session → (worker id, time last seen, open requests), least recently used first.

    Times are seconds, never going back. A pin is expired when it was not used for *more* than `ttl`; exactly
    `ttl` is alive, and an open request is use all along (B31, R070). Expired pins that nobody swept yet still
    count in `len`.

    A session whose key begins with MINTED has an id that we made up for a client that named none. Few such ids ever
    come back, so a tenth of `cap` is the most that is kept of them, besides the named; one that comes back is named.
    """

    __slots__ = ("_made_up", "_named", "cap", "ttl")

    def __init__(self, ttl: float, cap: int = PINS_KEPT) -> None:
        self.ttl = ttl
        self.cap = cap
        self._named: OrderedDict[str, _Pin] = OrderedDict()
        self._made_up: OrderedDict[str, _Pin] = OrderedDict()

    def __len__(self) -> int:
        return len(self._named) + len(self._made_up)

    def find(self, session: str, now: float) -> str | None:
        """Id of the worker that `session` is pinned to, None when unknown or expired; changes nothing."""
        pin = self._named.get(session)
        if pin is None:
            pin = self._made_up.get(_as_made_up(session))
        if pin is None or (now - pin.seen > self.ttl and not pin.held):
            return None
        return pin.worker

    def pin(self, session: str, worker_id: str, now: float, *, held: bool = False) -> None:
        """Pin `session` to `worker_id`, as the most recently used; `held` until a `touch` ends the request.

        Over the cap, expired pins go first, then the least recently used.
        """
        made_up = session.startswith(MINTED)
        pins = self._made_up if made_up else self._named
        pin = pins.get(session)
        if pin is None:
            if not made_up:
                self._made_up.pop(_as_made_up(session), None)
            pins[session] = _Pin(worker_id, now, int(held))
            most = max(1, self.cap // 10) if made_up else self.cap
            if len(pins) > most:
                self._shrink(pins, most, now)
            return
        pin.held = held + (pin.held if pin.worker == worker_id else 0)
        pin.worker = worker_id
        pin.seen = now
        pins.move_to_end(session)

    def touch(self, session: str, worker_id: str, now: float) -> None:
        """A request ended: refresh the pin if it still names `worker_id`, else leave all as it is."""
        pins = self._made_up if session.startswith(MINTED) else self._named
        pin = pins.get(session)
        if pin is not None and pin.worker == worker_id:
            pin.seen = now
            if pin.held:
                pin.held -= 1
            pins.move_to_end(session)

    def drop_worker(self, worker_id: str) -> int:
        """Forget every pin to `worker_id`; returns how many."""
        count = 0
        for pins in (self._named, self._made_up):
            gone = [session for session, pin in pins.items() if pin.worker == worker_id]
            for session in gone:
                del pins[session]
            count += len(gone)
        return count

    def sweep(self, now: float) -> int:
        """Forget expired pins; returns how many."""
        return self._sweep(self._named, now) + self._sweep(self._made_up, now)

    def _sweep(self, pins: OrderedDict[str, _Pin], now: float) -> int:
        gone = 0
        while pins:
            session, pin = next(iter(pins.items()))
            if now - pin.seen <= self.ttl:
                break
            if pin.held:
                pin.seen = now  # in use now, so the last to go
                pins.move_to_end(session)
            else:
                del pins[session]
                gone += 1
        return gone

    def _shrink(self, pins: OrderedDict[str, _Pin], most: int, now: float) -> None:
        self._sweep(pins, now)
        while len(pins) > most:
            pins.popitem(last=False)


def _as_made_up(session: str) -> str:
    """The key that a session had while only we knew its id."""
    return MINTED + session[len(_NAMED) :] if session.startswith(_NAMED) else session
