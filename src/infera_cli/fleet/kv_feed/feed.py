"""Keeps one publisher open for each rank of each worker, and finds out where they are (C8, C25, C29).

A worker that cannot say yet is asked again, ever more seldom; one that came back from being unwell is followed
from the beginning, since nobody knows what it did meanwhile (engines §1.8.7).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

import zmq

from infera_cli.events import Event, WorkerChanged
from infera_cli.fleet.kv_feed import addresses
from infera_cli.fleet.kv_feed.addresses import Address, Published
from infera_cli.fleet.kv_feed.counters import FeedCounters
from infera_cli.fleet.kv_feed.intake import Inlet, Intake
from infera_cli.fleet.kv_feed.keeper import Keeper, Room, Turns
from infera_cli.fleet.member import Member
from infera_cli.fleet.probe import Fetch
from infera_cli.fleet.registry import Registry
from infera_cli.routing.prefix import Slot
from infera_cli.routing.types import Worker, WorkerSpec

ASK_FIRST, ASK_MOST = 2.0, 60.0
"""Seconds between two questions to a worker that did not say where it publishes."""
TAIL_SECONDS = 30.0
"""How often a quiet publisher is asked whether something was missed."""
SILENT_AFTER = 40
"""Requests served without a single event, after which somebody should know (R080)."""

_SILENT = "Does the engine publish KV events, over the same transport?"
_UNREACHED = (
    "Nobody listens there: vLLM does only where the endpoint of its --kv-events-config has a *, as in tcp://*:5557; "
    "to any other address it connects itself."
)

log = logging.getLogger("infera.kv")


Slots = Callable[[Worker, int | None], Sequence[Slot]]
"""(worker, ranks that it turned out to have, None: unknown) → a slot a rank, in order."""


class _Followed:
    """What the feed keeps of a worker."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.task: asyncio.Task[None] | None = None
        self.known: dict[int, Address] = {}
        self.publishers: list[Keeper] = []
        self.routed_before = member.routed
        self.warned = False
        self.faulty = False


class KvFeed:
    """All publishers of the fleet, into one intake. Needs a running loop; `counters` are by target key."""

    def __init__(
        self, registry: Registry, fetch: Fetch, intake: Intake, slots: Slots, *,
        timeout: float = 5.0, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.counters: dict[str, FeedCounters] = {}
        self._registry = registry
        self._fetch = fetch
        self._intake = intake
        self._slots = slots
        self._timeout = timeout
        self._clock = clock
        self._context = _new_context()
        self._closed = False
        self._turns = Turns()
        self._room = Room()
        self._followed: dict[Member, _Followed] = {}
        self._tail_at = clock() + TAIL_SECONDS
        self._sync_due = False

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────
    def sync(self) -> None:
        """Follow members that came, let go of those that went."""
        self._sync_due = False
        if self._closed:
            return
        members = dict.fromkeys(self._registry.members())
        for gone in [member for member in self._followed if member not in members]:
            self._drop(self._followed.pop(gone))
        for member in members:
            if member not in self._followed:
                followed = self._followed[member] = _Followed(member)
                for slot in self._slots(member.worker, None):
                    self.counters.setdefault(slot.name, FeedCounters())
                self._find(followed)

    def on_event(self, event: Event) -> None:
        """A listener for the bus."""
        if not isinstance(event, WorkerChanged):
            return
        if event.what in ("added", "removed"):
            if not self._sync_due:
                self._sync_due = True
                asyncio.get_running_loop().call_soon(self.sync)
        elif event.what == "ready":
            member = self._registry.member(event.worker)
            followed = self._followed.get(member) if member is not None else None
            if followed is not None:
                self._find(followed)

    async def run(self) -> None:
        """Look after quiet tails and silent workers until cancelled; then close everything. May be run again."""
        if self._closed:
            self._context, self._room, self._closed = _new_context(), Room(), False
            self.sync()
        try:
            while True:
                await asyncio.sleep(1.0)
                self.tick(self._clock())
        finally:
            self.close()

    def close(self) -> None:
        """Stop following everybody; what is not followed gives no hits."""
        self._closed = True
        for followed in self._followed.values():
            self._drop(followed)
        self._followed.clear()
        self._context.destroy(linger=0)

    def tick(self, now: float) -> None:
        """What is due now; what fails for one worker is not left out for the others."""
        tails = now >= self._tail_at
        if tails:
            self._tail_at = now + TAIL_SECONDS
        for followed in list(self._followed.values()):
            try:
                self._listen_for_silence(followed)
            except Exception as fault:  # noqa: BLE001 - whatever it is, the others are looked after
                self._fault(followed, fault)
            if tails:
                for publisher in followed.publishers:
                    publisher.check_tail()

    def _fault(self, followed: _Followed, fault: Exception) -> None:
        self.counters.setdefault(followed.member.id, FeedCounters()).faults += 1
        if not followed.faulty:
            followed.faulty = True
            log.error("KV events of %s: a fault of ours; trying again", followed.member.id, exc_info=fault)

    @property
    def settled(self) -> bool:
        """Whether everybody is followed, and all that was said is in the index."""
        return all(
            followed.publishers and all(publisher.settled for publisher in followed.publishers)
            for followed in self._followed.values()
        )

    def _listen_for_silence(self, followed: _Followed) -> None:
        if followed.warned or followed.member.routed - followed.routed_before < SILENT_AFTER:
            return
        if any(publisher.counters.batches for publisher in followed.publishers):
            followed.routed_before = followed.member.routed
            return
        followed.warned = True
        where = ", ".join(address.endpoint for address in followed.known.values()) or "an address it never told"
        reached = any(publisher.connected for publisher in followed.publishers)
        log.warning(
            "%s: no events received over zmq (%s) though it served %d requests; it is routed to by load alone. %s",
            followed.member.id, where, followed.member.routed - followed.routed_before,
            _SILENT if reached else _UNREACHED,
        )  # fmt: skip

    # ── where ────────────────────────────────────────────────────────────────────────────────────────
    def _find(self, followed: _Followed) -> None:
        if followed.task is not None:
            followed.task.cancel()
        followed.task = asyncio.get_running_loop().create_task(self._search(followed))

    async def _search(self, followed: _Followed) -> None:
        wait, said = ASK_FIRST, False
        while True:
            try:
                published = await self._published(followed.member.spec)
                if published is not None:
                    self._follow(followed, published)
                    return
            except Exception as fault:  # noqa: BLE001 - a search that ended would never be begun again
                self._fault(followed, fault)
                said = True
            if not said and followed.member.ready:
                said = True
                log.info("%s does not say where it publishes KV events; asking again", followed.member.id)
            await asyncio.sleep(wait)
            wait = min(ASK_MOST, wait * 2)

    async def _published(self, spec: WorkerSpec) -> Published | None:
        own = addresses.registered(spec)
        host = spec.address or spec.host
        asked = addresses.from_vllm(await self._get(spec, "/kv_event_sources"), host)
        size = None
        if asked is not None:
            size = addresses.block_size_in(await self._get(spec, "/metrics"))
        elif spec.engine not in ("vllm", "atom", "pypto"):
            asked = addresses.from_sglang(await self._get(spec, "/server_info"), host)
        found = addresses.joined(own, asked)
        return Published(found.ranks, size) if found is not None and size is not None else found

    async def _get(self, spec: WorkerSpec, path: str) -> bytes:
        try:
            reply = await self._fetch(spec, path, timeout=self._timeout)
        except (OSError, TimeoutError):
            return b""
        return reply.body if reply.status == 200 else b""

    # ── following ────────────────────────────────────────────────────────────────────────────────────
    def _follow(self, followed: _Followed, published: Published) -> None:
        spec = followed.member.spec
        ranks = published.ranks
        if followed.publishers and followed.known == ranks:
            for publisher in followed.publishers:
                publisher.start()
            return
        self._stop(followed)
        followed.known = ranks
        alone = spec.dp_rank is not None
        slots = self._slots(followed.member.worker, None if alone or spec.ranks else len(ranks))
        chosen = [ranks.get(spec.dp_rank or 0) or next(iter(ranks.values()))] if len(slots) == 1 else [
            ranks[rank] for rank in range(len(slots)) if rank in ranks]  # fmt: skip
        for slot, address in zip(slots, chosen, strict=False):
            if slot.block_size is None:
                slot.block_size = published.block_size
            counters = self.counters.setdefault(slot.name, FeedCounters())
            inlet = Inlet(self._intake, slot, counters, spec.kv_block_size)
            followed.publishers.append(Keeper(self._context, address, inlet, self._turns, self._room))

    def _stop(self, followed: _Followed) -> None:
        for publisher in followed.publishers:
            try:
                publisher.close()
            except Exception as fault:  # noqa: BLE001 - the others are closed all the same
                self._fault(followed, fault)
            self._intake.forget(publisher.inlet)
        followed.publishers.clear()

    def _drop(self, followed: _Followed) -> None:
        if followed.task is not None:
            followed.task.cancel()
        self._stop(followed)
        prefix = followed.member.id
        if self._registry.member(prefix) is None:
            for key in [key for key in self.counters if key == prefix or key.startswith(f"{prefix}#dp")]:
                del self.counters[key]


def _new_context() -> zmq.Context[zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 65_536)
    return context
