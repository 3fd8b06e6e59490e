"""From payloads to the index, a little at a time, so that nobody else waits for a flood of events.

Batches of all ranks queue up; each turn of the loop applies blocks for a third of a millisecond, one rank after the
other, so that a talkative one delays nobody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from infera_cli.fleet.kv_feed.complaints import Complaints
from infera_cli.fleet.kv_feed.counters import FeedCounters
from infera_cli.protocol.kv_events import Batch, KvEvent, Removed, Stored, parts
from infera_cli.routing.prefix import PrefixIndex, Slot

TURN_SECONDS = 0.0003
PIECE = 64
"""Blocks that are applied in one go, about."""

log = logging.getLogger("infera.kv")


class Inlet:
    """One rank's way into the index; a follower's Sink."""

    def __init__(self, intake: Intake, slot: Slot, counters: FeedCounters, registered: int | None) -> None:
        self.slot = slot
        self.counters = counters
        self.heard = -1.0
        """When the last batch was applied; −1: never."""
        self._intake = intake
        self._registered = registered
        self._complaints = Complaints(slot.name)
        self._queue: deque[bytes | None] = deque()
        self._work: Iterator[None] | None = None

    def apply(self, payload: bytes) -> None:
        """See Sink."""
        self._queue.append(payload)
        self._intake.wake(self)

    def reset(self) -> None:
        """See Sink; in order with what was applied before."""
        self._queue.append(None)
        self._intake.wake(self)

    @property
    def idle(self) -> bool:
        """Whether all that came is in the index."""
        return self._work is None and not self._queue

    def step(self, now: float) -> bool:
        """Do a piece of work; False when there is none left."""
        if self._intake.index.slots.get(self.slot.number) is not self.slot:  # its worker left a moment ago
            self.empty()
            return False
        if self._work is None:
            if not self._queue:
                return False
            payload = self._queue.popleft()
            self._work = self._batch(payload, now) if payload is not None else self._clear()
        try:
            next(self._work)
        except StopIteration:
            self._work = None
        except Exception as fault:  # noqa: BLE001 - whatever comes, this rank and the others go on after it (R085)
            self._work = None
            self.garbled("a batch could not be applied", fault=fault)
        return True

    def empty(self) -> None:
        """What is queued is of no interest any more."""
        self._work = None
        self._queue.clear()

    def _clear(self) -> Iterator[None]:
        self._intake.index.clear(self.slot)
        yield

    def garbled(self, what: str, *, fault: BaseException | None = None) -> None:
        """Something came that cannot be read, or not be applied."""
        self.counters.malformed += 1
        self._complaints.bad(what, fault=fault)

    def _batch(self, payload: bytes, now: float) -> Iterator[None]:
        self.counters.batches += 1
        self.heard = now
        bad, first = self._complaints.count, True
        for batch in parts(payload):
            if not first:
                yield
            first = False
            self._count(batch, len(payload))
            yield from self._apply(batch.events, now)
        if bad == self._complaints.count:
            self._complaints.good()

    def _count(self, batch: Batch, size: int) -> None:
        counters = self.counters
        counters.events += len(batch.events) + batch.skipped + batch.malformed
        counters.ignored += batch.skipped
        counters.malformed += batch.malformed
        if batch.malformed:
            self._complaints.bad(f"{batch.malformed} events in a batch of {size} bytes cannot be read")

    def _apply(self, events: Iterable[KvEvent], now: float) -> Iterator[None]:
        done = 0
        for event in joined(events):
            if isinstance(event, Stored):
                if event.block_size != self._registered is not None:
                    self._compare(event.block_size)
                for piece in pieces(event) if len(event.hashes) > PIECE else (event,):
                    done += self._store(piece, now)
                    if done >= PIECE:
                        done = 0
                        yield
            elif isinstance(event, Removed):
                for start in range(0, len(event.hashes), PIECE):
                    hashes = event.hashes[start : start + PIECE] if len(event.hashes) > PIECE else event.hashes
                    self.counters.unknown += self._intake.index.remove(self.slot, hashes, event.group)
                    done += len(hashes)
                    if done >= PIECE:
                        done = 0
                        yield
            else:
                self._intake.index.clear(self.slot)

    def _store(self, piece: Stored, now: float) -> int:
        """Returns what it cost, in blocks."""
        taken = self._intake.index.store(
            self.slot, piece.parent, piece.hashes, piece.tokens, piece.block_size, adapter=piece.adapter,
            salt=piece.salt, extras=piece.extras, group=piece.group, now=now,
        )  # fmt: skip
        counters = self.counters
        counters.blocks += taken.blocks
        if taken.orphan:
            counters.orphans += 1
        elif taken.refused:
            counters.refused += 1
            if piece.group is None or self.slot.group in (None, piece.group):  # else of a group that is not indexed
                self._complaints.bad(
                    f"{len(piece.hashes)} blocks of {piece.block_size} tokens with {len(piece.tokens)} tokens do not "
                    "add up, or are of another block size than those before"
                )
        return len(piece.hashes)

    def _compare(self, size: int) -> None:
        self.counters.sizes += 1
        log.warning(
            "%s announces blocks of %d tokens and is registered with %d; going by the events (S64, S65)",
            self.slot.name, size, self._registered,
        )  # fmt: skip
        self._registered = None


def joined(events: Iterable[KvEvent]) -> Iterator[KvEvent]:
    """The same events, where one that goes on where the one before ends is part of it: SGLang tells page by page."""
    last: Stored | None = None
    run: list[Stored] = []
    for event in events:
        if last is None:
            pass
        elif (
            isinstance(event, Stored) and event.parent is not None and _follows(last, event)
            and (run or _adds_up(last)) and _adds_up(event)
        ):  # fmt: skip
            run = run or [last]
            run.append(event)
            last = event
            continue
        else:
            yield _one(run) if run else last
            run = []
        last = event if isinstance(event, Stored) else None
        if last is None:
            yield event
    if last is not None:
        yield _one(run) if run else last


def _follows(before: Stored, event: Stored) -> bool:
    return (
        bool(before.hashes) and before.hashes[-1] == event.parent and before.block_size == event.block_size
        and event.extras is None and before.extras is None
        and before.adapter == event.adapter and before.salt == event.salt and before.group == event.group
    )  # fmt: skip


def _adds_up(event: Stored) -> bool:
    return bool(event.hashes) and len(event.tokens) == len(event.hashes) * event.block_size


def _one(run: Sequence[Stored]) -> Stored:
    first = run[0]
    return Stored(
        [hash_ for event in run for hash_ in event.hashes], first.parent,
        [token for event in run for token in event.tokens], first.block_size, first.adapter, first.salt,
        None, first.group,
    )  # fmt: skip


def pieces(event: Stored) -> Iterator[Stored]:
    """The event itself, or, when it is long, the same blocks in several events."""
    count, size = len(event.hashes), event.block_size
    if count <= PIECE or len(event.tokens) != count * size:
        yield event
        return
    parent, extras = event.parent, event.extras
    for start in range(0, count, PIECE):
        hashes = event.hashes[start : start + PIECE]
        yield Stored(
            hashes, parent, event.tokens[start * size : (start + len(hashes)) * size], size, adapter=event.adapter,
            salt=event.salt, extras=None if extras is None else extras[start : start + PIECE], group=event.group,
        )  # fmt: skip
        parent = hashes[-1]


class Intake:
    """All inlets over one index; needs a running loop. `clock` is the one that the index's times are of."""

    def __init__(self, index: PrefixIndex, clock: Callable[[], float] = time.monotonic) -> None:
        self.index = index
        self._clock = clock
        self._busy: deque[Inlet] = deque()
        self._waiting: set[Inlet] = set()
        self._handle: asyncio.Handle | None = None

    def wake(self, inlet: Inlet) -> None:
        """The inlet has something to do."""
        if inlet not in self._waiting:
            self._waiting.add(inlet)
            self._busy.append(inlet)
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self._turn)

    def forget(self, inlet: Inlet) -> None:
        """What is still queued there is of no interest any more, and what was believed is void: nobody follows it."""
        inlet.empty()
        if inlet in self._waiting:
            self._waiting.remove(inlet)
            self._busy.remove(inlet)
        if self.index.slots.get(inlet.slot.number) is inlet.slot:
            self.index.clear(inlet.slot)

    def _turn(self) -> None:
        self._handle = None
        now = self._clock()
        end = now + TURN_SECONDS
        while self._busy:
            inlet = self._busy.popleft()
            if inlet.step(now):
                self._busy.append(inlet)
            else:
                self._waiting.discard(inlet)
            if self._clock() >= end:
                break
        more = self.index.tidy() if not self._busy else True
        if more:
            self._handle = asyncio.get_running_loop().call_soon(self._turn)
