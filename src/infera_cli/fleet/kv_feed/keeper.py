"""Keeps one rank's publisher open: opened when it is its turn, and again after whatever befell it.

What goes wrong with one rank costs that rank its view and nobody else anything; what is not followed gives no hits.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections import deque
from collections.abc import Callable

import zmq

from infera_cli.fleet.kv_feed.addresses import Address
from infera_cli.fleet.kv_feed.counters import FeedCounters
from infera_cli.fleet.kv_feed.intake import Inlet
from infera_cli.fleet.kv_feed.zmq import Publisher, accepts

FAULT_FIRST, FAULT_MOST = 1.0, 60.0
"""Seconds until a rank is followed anew after a fault of ours."""
REFUSED_FIRST, REFUSED_MOST = 10.0, 600.0
"""Seconds until an address is tried again that ZeroMQ does not take, or for which there was no room."""
TURN_SECONDS = 0.002
"""How long publishers are opened, or asked, before others have their turn."""
DESCRIPTORS_EACH = 6
"""Of a publisher: live, its watch (two), replay, and their connections."""
PUBLISHERS_MOST = 8192

UNUSABLE = (zmq.ZMQError, OSError, ValueError, TypeError)
"""What an address is refused with."""

log = logging.getLogger("infera.kv")


class Room:
    """Publishers that may still be opened: half of the descriptors that this process may have are for requests."""

    def __init__(self, most: int | None = None) -> None:
        if most is None:
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            allowed = soft // 2 // DESCRIPTORS_EACH if soft != resource.RLIM_INFINITY else PUBLISHERS_MOST
            most = max(8, min(PUBLISHERS_MOST, allowed))
        self.most = most
        self.taken = 0
        self._told = False

    def take(self) -> bool:
        """Whether there is room for one more."""
        if self.taken < self.most:
            self.taken += 1
            return True
        if not self._told:
            self._told = True
            log.warning(
                "%d KV event streams are followed, and more would need too many file descriptors (ulimit -n); "
                "the other ranks are routed to by load alone", self.most,
            )  # fmt: skip
        return False


class Turns:
    """Does what is asked for a few at a time, so that a thousand ranks hold nobody up."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._handle: asyncio.Handle | None = None

    def wait(self, work: Callable[[], None]) -> None:
        """Do it when it is its turn; it must not fail."""
        self._waiting.append(work)
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._handle = None
        end = time.monotonic() + TURN_SECONDS
        while self._waiting:
            self._waiting.popleft()()
            if time.monotonic() >= end:
                break
        if self._waiting:
            self._handle = asyncio.get_running_loop().call_later(TURN_SECONDS, self._next)


class Keeper:
    """One rank's publisher, into `inlet`; opened by `turns`, where there is `room`."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], address: Address, inlet: Inlet, turns: Turns, room: Room
    ) -> None:
        self.name = inlet.slot.name
        self.address = address
        self.inlet = inlet
        self.publisher: Publisher | None = None
        self._context = context
        self._turns = turns
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._opened = 0.0
        self._wait = 0.0
        self._closed = False
        self._told: set[str] = set()
        turns.wait(self.open)

    @property
    def counters(self) -> FeedCounters:
        """Of this rank."""
        return self.inlet.counters

    @property
    def connected(self) -> bool:
        """Whether somebody listens at the other end."""
        return self.publisher is not None and self.publisher.connected

    @property
    def settled(self) -> bool:
        """Whether it is followed, and all that was said is in the index."""
        return self.publisher is not None and not self.publisher.follower.replaying and self.inlet.idle

    def open(self) -> None:
        """Follow, if that can be; otherwise try again later."""
        if self._closed or self.publisher is not None:
            return
        if not self._room.take():
            self.counters.unusable += 1
            self._again(REFUSED_FIRST, REFUSED_MOST)
            return
        try:
            self._open()
        except UNUSABLE as refused:
            self._room.taken -= 1
            self.counters.unusable += 1
            self._tell("address", f"its address {self.address.endpoint!r} cannot be used: {refused}")
            self._again(REFUSED_FIRST, REFUSED_MOST)
        except Exception as fault:  # noqa: BLE001 - costs this rank its view, and nobody else anything
            self._room.taken -= 1
            self._count(fault)

    def _open(self) -> None:
        replay = self.address.replay
        try:
            self.publisher = self._made(replay)
        except UNUSABLE:
            why = accepts(self._context, replay) if replay is not None else None
            if why is None:
                raise
            self.counters.unusable += 1
            self._tell("replay", f"its replay address {replay!r} cannot be used ({why}); what is missed is gone")
            replay = None
            self.publisher = self._made(replay)
        self._opened = self._loop.time()
        log.info("%s: following KV events at %s, replay %s", self.name, self.address.endpoint, replay or "none")

    def _made(self, replay: str | None) -> Publisher:
        return Publisher(
            self._context, self.name, self.address.endpoint, replay, self.inlet, self.counters, broke=self._broke
        )

    def close(self) -> None:
        """Follow no longer."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._leave()

    def start(self) -> None:
        """Believe nothing, and learn all there is."""
        self._do(lambda publisher: publisher.follower.start())

    def check_tail(self) -> None:
        """See Follower; when it is its turn."""
        self._turns.wait(self._check_tail)

    def _check_tail(self) -> None:
        self._do(lambda publisher: publisher.check_tail())

    def _do(self, what: Callable[[Publisher], None]) -> None:
        publisher = self.publisher
        if publisher is not None:
            try:
                what(publisher)
            except Exception as fault:  # noqa: BLE001 - costs this rank its view, and nobody else anything
                self._broke(fault)

    # ── what went wrong ──────────────────────────────────────────────────────────────────────────────
    def _broke(self, fault: BaseException) -> None:
        self.inlet.empty()
        self.inlet.reset()
        self._leave()
        if self._loop.time() - self._opened > FAULT_MOST:
            self._wait = 0.0
        self._count(fault)

    def _count(self, fault: BaseException) -> None:
        self.counters.faults += 1
        if "fault" not in self._told:
            self._told.add("fault")
            log.error("KV events of %s: a fault of ours; it is followed anew", self.name, exc_info=fault)
        self._again(FAULT_FIRST, FAULT_MOST)

    def _leave(self) -> None:
        publisher, self.publisher = self.publisher, None
        if publisher is not None:
            self._room.taken -= 1
            try:
                publisher.close()
            except Exception:  # it must be followed anew all the same
                log.debug("a publisher of %s cannot be closed", self.name, exc_info=True)

    def _again(self, first: float, most: float) -> None:
        if not self._closed:
            self._wait = min(most, max(first, self._wait * 2))
            self._timer = self._loop.call_later(self._wait, self._turns.wait, self.open)

    def _tell(self, kind: str, what: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            log.warning("KV events of %s: %s", self.name, what)
