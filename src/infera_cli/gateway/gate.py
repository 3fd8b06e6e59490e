"""What all relayed requests share: limits, time-outs, the dialect of errors, and who is inside right now.

One timer sweeps over everybody inside; no request carries a timer of its own (design.md §3).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from infera_cli.errors import InferaError, TooManyRequests
from infera_cli.events import Bus, RequestDone
from infera_cli.gateway.access import Access
from infera_cli.gateway.answer import Answer
from infera_cli.gateway.dispatch import Dispatcher
from infera_cli.gateway.options import RelayOptions
from infera_cli.gateway.overdue import SHUTDOWN, overdue, too_late
from infera_cli.gateway.plan import Plan
from infera_cli.gateway.random_bytes import RandomBytes
from infera_cli.gateway.refusals import Refusal, error_event, refusal
from infera_cli.gateway.relay import Relay
from infera_cli.gateway.relayed import AUDIO_PREFIX, RELAYED, is_relayed
from infera_cli.gateway.translation.relay import TranslatedRelay
from infera_cli.gateway.upstream.http import Client
from infera_cli.protocol import sse
from infera_cli.routing.types import Worker

if TYPE_CHECKING:
    from infera_cli.gateway.translation.desk import Desk

SWEEP_SECONDS = 0.1

_RELAYED: Final = frozenset(path.encode() for path in RELAYED)
_RELAYED_PREFIX: Final = AUDIO_PREFIX.encode()
_GENERATING: Final = frozenset({b"/v1/chat/completions", b"/v1/completions"})


def takes(path: bytes) -> bool:
    """Whether a POST to that path goes to a worker as it is."""
    return path in _RELAYED or (path.startswith(_RELAYED_PREFIX) and is_relayed(path.decode("latin-1")))


class Idle(Protocol):
    """A client connection as the sweep sees it."""

    def sweep(self, now: float) -> None:
        """Close it if it has been idle or half-said for too long."""


class Gate:
    """The way in and out of the data plane."""

    def __init__(
        self, dispatcher: Dispatcher, upstream: Client, bus: Bus, access: Access, options: RelayOptions,
        *, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.dispatcher = dispatcher
        self.upstream = upstream
        self.bus = bus
        self.access = access
        self.options = options
        self.clock = clock
        self.random_bytes = RandomBytes().take
        self._guarded = not access.is_blind
        self._most = options.limits.in_flight
        self.desk: Desk | None = None
        """What rewritten requests share; None where nothing is rewritten."""
        self.kinds: dict[bytes, type[Relay]] = {}
        """The relay of a route that is not passed on as it is."""
        self.dice = random.Random().random  # noqa: S311 - spreads the return of refused clients
        self.plan: Plan | None = None
        """What prepares requests for the policy's scorer and lets them wait; None where nothing does."""
        self.inside: set[Relay] = set()
        self.connections: set[Idle] = set()
        self.rejected = 0
        self.closed = False
        self.epoch = wall() - clock()
        """Unix time at which the clock read zero."""
        self._mean_total = 1.0

    # ── in and out ───────────────────────────────────────────────────────────────────────────────────
    def enter(self, relay: Relay) -> None:
        """Let a request in. Raises TooManyRequests, Unauthorized, NoRoutableWorker."""
        if self._guarded:
            verdict = self.access.client(relay.head.headers)
            relay.strip = verdict.strip
            if not verdict.allowed:
                self.access.require_client(relay.head.headers)
        if len(self.inside) >= self._most:
            if self.closed:
                raise too_late(SHUTDOWN, complete=True)
            self.rejected += 1
            raise TooManyRequests(
                f"The router holds {len(self.inside)} requests already (--max-inflight); try again shortly.",
                code="server_overloaded", retry_after=self.seconds_until_room(),
            )  # fmt: skip
        self.inside.add(relay)

    def close(self) -> None:
        """From now on nobody else comes in."""
        self.closed, self._most = True, 0

    def leave(self, relay: Relay, record: RequestDone) -> None:
        """A request is over."""
        self.inside.discard(relay)
        if record.outcome != "rejected":
            self._mean_total += (record.total - self._mean_total) * 0.05
        self.bus.emit(record)

    def seconds_until_room(self) -> float:
        """When the next place is likely to be free: mean duration over places, 1 to 60 s."""
        return min(60.0, max(1.0, self._mean_total / max(1, self.options.limits.in_flight)))

    def worker_left(self, worker: Worker) -> None:
        """A worker is gone for good: what waits for its first byte moves on (R110)."""
        for relay in list(self.inside):
            relay.worker_left(worker)

    def forget_absent(self) -> None:
        """Drop the connections of workers that are no longer in the fleet; busy ones finish (R151)."""
        fleet = self.dispatcher.fleet
        for worker in self.upstream.workers:
            member = fleet.member(worker.id)
            if member is None or member.worker is not worker:
                self.upstream.forget(worker)

    def cut_off(self) -> int:
        """The server ends: refuse what is still open, or break it off visibly. How many those were."""
        left = list(self.inside)
        for relay in left:
            relay.timed_out(SHUTDOWN)
        return len(left)

    # ── dialects ─────────────────────────────────────────────────────────────────────────────────────
    def refusal(self, target: bytes, error: InferaError) -> Refusal:
        """Our error in the shape of the API that was called."""
        return refusal(target.partition(b"?")[0].decode("latin-1"), error, self.dice())

    def error_event(self, target: bytes, error: InferaError) -> bytes:
        """The same inside a stream."""
        return error_event(target.partition(b"?")[0].decode("latin-1"), error)

    def ending(self, target: bytes, answer: Answer, last: list[bytes]) -> str:
        """How a stream went whose worker closed it properly: done, aborted or cut."""
        if answer.encoded:
            return "done"
        path = target.partition(b"?")[0]
        tail = answer.tail() + b"".join(last)
        if path in _GENERATING:
            return sse.openai_ending(tail)
        return sse.anthropic_ending(tail) if path == b"/v1/messages" else "done"

    # ── the sweep ────────────────────────────────────────────────────────────────────────────────────
    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = self.clock()
            for relay in list(self.inside):
                self._look_at(relay, now)
            for connection in list(self.connections):
                connection.sweep(now)
            self.upstream.sweep(now)

    def _look_at(self, relay: Relay, now: float) -> None:
        if relay.answer.chunks != relay.seen_chunks:
            relay.seen_chunks = relay.answer.chunks
            relay.moved = now
            if relay.first_byte and relay.lease is not None:
                self.dispatcher.fleet.alive(relay.lease.worker, now)
        if not relay.complete and relay.body is not None and len(relay.body) != relay.seen_bytes:
            relay.seen_bytes = len(relay.body)
            relay.moved = now
        passed = overdue(relay, now)
        if passed:
            relay.timed_out(passed)
        elif isinstance(relay, TranslatedRelay):
            self._be_patient(relay, now)
        elif self.options.stream_keepalive and relay.answer.streamed:
            self._keep_alive(relay, now, self.options.stream_keepalive)

    def _be_patient(self, relay: TranslatedRelay, now: float) -> None:
        if self.desk is not None and self.desk.keepalive:
            relay.patience(now, self.desk.keepalive)

    def _keep_alive(self, relay: Relay, now: float, every: float) -> None:
        if now - relay.commented >= every and now - relay.moved >= every and relay.answer.comment(sse.KEEP_ALIVE):
            relay.commented = now
