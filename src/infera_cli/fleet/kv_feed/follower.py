"""Follows one publisher's numbers: what to apply, when to ask again, when to start over (engines §1.8.7).

No sockets here: messages come in, and a `Mouth` is told what to ask for. A repeated number is a duplicate, a
gap asks for a replay, any other step back is a restart (rulings 17).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from infera_cli.fleet.kv_feed.counters import FeedCounters

ATTEMPTS = 3
HELD_MOST = 100_000
HELD_BYTES = 64 << 20
"""Live batches that may wait for a replay, and bytes of them; with more the replay is given up."""
LATE_MOST = 1000
"""Numbers before a gap that are taken to come late, should they come; anything else may be a new process."""
SEEN_MOST = 256
"""Replayed batches that are known again when they come live, too."""
SKIPPED_MOST = 127
"""Looks at the tail that are left out, at most, of a replay service that does not answer."""


class Sink(Protocol):
    """Where batches end up."""

    def apply(self, payload: bytes) -> None:
        """Take over what one batch says."""

    def reset(self) -> None:
        """Everything believed so far is void."""


class Follower:
    """One publisher. `ask` sends a replay request from a number on; None: there is no replay service.

    `tell` gets one sentence for each gap and restart.
    """

    def __init__(
        self, sink: Sink, counters: FeedCounters, *, ask: Callable[[int], None] | None, tell: Callable[[str], None]
    ) -> None:
        self._sink = sink
        self._counters = counters
        self._ask = ask
        self._tell = tell
        self.expected: int | None = None
        self.replaying = False
        """Whether live batches wait for a replay; while only the tail is looked at, they do not."""
        self._checking = False
        self._answered = False
        self._attempts = 0
        self._failed = 0
        self._skip = 0
        self._missing = range(0)
        self._last = b""
        self._seen: dict[int, int] = {}
        self._held: deque[tuple[int, bytes]] = deque()
        self._held_bytes = 0

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────
    def start(self) -> None:
        """First contact, or as good as: believe nothing, learn all there is."""
        self._sink.reset()
        self.expected = None if self._ask is None else 0
        self._missing = range(0)
        self._let_go()
        if self._ask is not None:
            self._replay(0)

    def check_tail(self) -> None:
        """Ask whether something was missed that nothing followed yet; answered by the end marker alone if not."""
        if self._ask is None or self.replaying or self._checking or self.expected is None:
            return
        if self._skip > 0:
            self._skip -= 1
            return
        self._replay(self.expected, hold=False)

    # ── live ─────────────────────────────────────────────────────────────────────────────────────────
    def live(self, seq: int | None, payload: bytes) -> None:
        """A batch came as it was published."""
        if seq is None:
            self._sink.apply(payload)
        elif self.replaying:
            self._hold(seq, payload)
        elif self.expected is None or seq == self.expected:
            self._take(seq, payload)
        elif seq > self.expected:
            self._gap(seq, payload)
        else:
            self._step_back(seq, payload)

    def _take(self, seq: int, payload: bytes) -> None:
        self.expected = seq + 1
        self._last = payload
        self._sink.apply(payload)

    def _hold(self, seq: int, payload: bytes) -> None:
        self._held.append((seq, payload))
        self._held_bytes += len(payload)
        if len(self._held) > HELD_MOST or self._held_bytes > HELD_BYTES:
            self._give_up()

    def _gap(self, seq: int, payload: bytes) -> None:
        assert self.expected is not None  # noqa: S101 - a gap lies between two numbers
        self._counters.gaps += 1
        lost = seq - self.expected
        if self._ask is not None:
            self._tell(f"{lost} batches are missing before number {seq}; asking for them again")
            self._replay(self.expected)
            self._hold(seq, payload)
            return
        self._tell(f"{lost} batches are missing before number {seq} and cannot be had again; its view starts over")
        self._start_over(range(self.expected, seq))
        self._take(seq, payload)

    def _step_back(self, seq: int, payload: bytes) -> None:
        assert self.expected is not None  # noqa: S101 - back from something
        again = (seq == self.expected - 1 and payload == self._last) or self._seen.get(seq) == hash(payload)
        if again or seq in self._missing:
            self._counters.duplicates += 1
            return
        self._counters.restarts += 1
        self._tell(f"number {seq} after {self.expected - 1}: the engine was restarted; its view starts over")
        self._start_over(range(0))
        if self._ask is None:
            self._take(seq, payload)
        else:
            self.expected = 0
            self._replay(0)
            self._hold(seq, payload)

    def _start_over(self, missing: range) -> None:
        self._sink.reset()
        self._missing = missing[-LATE_MOST:]

    # ── replay ───────────────────────────────────────────────────────────────────────────────────────
    def _replay(self, start: int, *, hold: bool = True) -> None:
        self._attempts = 0
        self._seen.clear()
        self.replaying, self._checking = hold, not hold
        self._send(start)

    def _send(self, start: int) -> None:
        assert self._ask is not None  # noqa: S101 - replays are only begun where they can be
        self._attempts += 1
        self._answered = False
        self._counters.replays += 1
        self._ask(start)

    def replayed(self, seq: int, payload: bytes) -> None:
        """A batch came again, on demand."""
        self._answered = True
        if not (self.replaying or self._checking) or self.expected is None or seq < self.expected:
            return
        if seq > self.expected and self.expected > 0:  # older ones are no longer kept there
            self._tell(f"its replay begins only at {seq}, {self.expected} was wanted; its view starts over")
            self._start_over(range(self.expected, seq))
        self._take(seq, payload)
        if self._checking:  # it may come live yet, and is no step back then
            self._seen[seq] = hash(payload)
            if len(self._seen) > SEEN_MOST:
                del self._seen[next(iter(self._seen))]

    def end_of_replay(self) -> None:
        """The end marker came: go on live, with what waited."""
        self._failed = self._skip = 0
        self._go_on()

    def no_end(self) -> None:
        """No end marker in time: ask again for what is still missing, a few times (engines §1.8.6).

        Only once for a look at the tail that was not answered at all, and where nobody answered before.
        """
        if not (self.replaying or self._checking):
            return
        patient = self._answered or (self.replaying and not self._failed)
        if patient and self._attempts < ATTEMPTS:
            self._send(self.expected or 0)
            return
        self._give_up()

    def _give_up(self) -> None:
        self._counters.replays_failed += 1
        self._failed += 1
        self._skip = min(SKIPPED_MOST, (1 << min(self._failed, 16)) - 1)
        if self._failed == 1:
            self._tell("its replay does not end; going on with live events alone, and asking ever more seldom")
        self._go_on()

    def _go_on(self) -> None:
        self.replaying = self._checking = False
        for seq, payload in self._let_go():
            if self.expected is None or seq >= self.expected:
                if self.expected is not None and seq > self.expected and self.expected > 0:
                    self._tell(f"{seq - self.expected} batches before number {seq} are lost; its view starts over")
                    self._start_over(range(self.expected, seq))
                self._take(seq, payload)

    def _let_go(self) -> deque[tuple[int, bytes]]:
        held, self._held, self._held_bytes = self._held, deque(), 0
        return held
