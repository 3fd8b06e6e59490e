"""One target per worker, or per rank of it; its load, images and promises (infera-wire §4.3, §4.4)."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence

import msgspec

from infera_cli.routing.kv.active import ActiveBlocks
from infera_cli.routing.prefix import PrefixIndex, Slot, unit_of
from infera_cli.routing.types import Pool, Worker

DECAY = 0.97
FORGOTTEN = 0.001
IMAGES_KEPT = 256
PROMISE_SECONDS = 600.0
"""A promise holds at most so long, whatever becomes of the request."""
GRACE_SECONDS = 2.0
"""How long after a request's end its blocks may still be announced."""

_POOLS_KEPT = 64
_SMALLEST_SCALE = 1e-9


class Target:
    """One place that a request can go to. `key` is `<worker id>` or `<worker id>#dp<rank>`."""

    __slots__ = ("active", "images", "key", "picks", "rank", "recent", "slot", "style", "worker")

    def __init__(self, worker: Worker, rank: int | None, slot: Slot, style: str) -> None:
        self.worker = worker
        self.rank = rank
        self.slot = slot
        self.style = style
        self.key = slot.name
        self.active = ActiveBlocks()
        self.picks = 0
        self.recent = 0.0
        """Missed blocks of past picks, over the book's scale."""
        self.images: OrderedDict[int, None] = OrderedDict()

    @property
    def unit(self) -> int | None:
        """Tokens a block of the index stands for; as registered until the engine's events tell."""
        registered = self.worker.spec.kv_block_size
        return self.slot.unit or (unit_of(registered) if registered else None)


class Choice(msgspec.Struct, frozen=True, gc=False):
    """Where a prompt goes, and what is known about it there. `hits` and `blocks` are in units of the target, `length`
    is in its tokens. `empty` blocks are what the prompt counts where it has no full one.

    It must not lead back to its prompt, which knows it: nobody would ever free the two.
    """

    at: int
    target: Target
    hits: int
    chain: Sequence[int]
    length: int = 0
    images: Sequence[int] = ()
    empty: float = 1.0

    @property
    def blocks(self) -> int:
        """Full blocks of the prompt."""
        return len(self.chain)

    @property
    def rank(self) -> int | None:
        """The target's rank."""
        return self.target.rank


Kind = tuple[str, int]
"""How prompts are hashed for a target: the style of its tokens, and its unit."""
Seat = tuple[int, Target]
"""A place in a pool, and a target there."""


class KvBook:
    """All targets, and what past picks cost them. Times are seconds of the caller's clock."""

    def __init__(self, index: PrefixIndex) -> None:
        self.index = index
        self._of: dict[Worker, tuple[Target, ...]] = {}
        self._seats: OrderedDict[int, tuple[Pool, list[Seat]]] = OrderedDict()
        self.scale = 1.0
        """What a target's `recent` is worth now."""
        self._lapsing: deque[tuple[float, float, Slot, Sequence[int], int]] = deque()
        self.spin = 0
        """Turns with every pick, so that full ties go round (rulings 16)."""
        self.lapsed = 0
        """Promised blocks that were never announced."""

    # ── who is there ─────────────────────────────────────────────────────────────────────────────────
    def open(self, worker: Worker, style: str, count: int | None = None) -> tuple[Target, ...]:
        """A worker came; its targets, the same ones when it is known already.

        `count` are the ranks behind its address where they were learned from itself.
        """
        found = self._of.get(worker)
        wanted = worker.spec.ranks if count is None else count
        if found is not None and (count is None or len(found) == max(1, count)):
            return found
        self.close(worker)
        ranks: Iterable[int | None] = range(wanted) if wanted > 1 else (None,)
        found = self._of[worker] = tuple(self._target(worker, rank, style) for rank in ranks)
        self._seats.clear()
        return found

    def _target(self, worker: Worker, rank: int | None, style: str) -> Target:
        slot = self.index.open(worker.id if rank is None else f"{worker.id}#dp{rank}")
        return Target(worker, rank, slot, style)

    def close(self, worker: Worker) -> None:
        """A worker left, and all that is known of it (infera-wire §4.4)."""
        for target in self._of.pop(worker, ()):
            self.index.close(target.slot)
        self._seats.clear()

    def targets(self) -> Iterable[Target]:
        """Everyone."""
        return (target for targets in self._of.values() for target in targets)

    def targets_of(self, worker: Worker) -> tuple[Target, ...]:
        """Those of one worker, none when it is not known."""
        return self._of.get(worker, ())

    def kinds(self) -> set[Kind]:
        """Every (style, unit) that prompts are hashed for."""
        return {(target.style, target.unit) for target in self.targets() if target.unit is not None}

    def seats(self, pool: Pool) -> list[Seat]:
        """The targets of a pool with their workers' places in it; a worker nobody opened has none."""
        kept = self._seats.get(id(pool))
        if kept is not None:
            return kept[1]
        found = [(at, target) for at, worker in enumerate(pool.workers) for target in self._of.get(worker, ())]
        self._seats[id(pool)] = pool, found
        if len(self._seats) > _POOLS_KEPT:
            self._seats.popitem(last=False)
        return found

    # ── load ─────────────────────────────────────────────────────────────────────────────────────────
    def recent(self, target: Target) -> float:
        """Missed blocks of past picks, each worth 0.97 of before with every pick since."""
        value = target.recent * self.scale
        return value if value >= FORGOTTEN else 0.0

    def load(self, target: Target) -> float:
        """load(t) of infera-wire §4.4."""
        return target.active.count + self.recent(target)

    def begin(self, choice: Choice, now: float) -> Held:
        """The prompt goes there now: count its blocks, promise them, remember its images."""
        target, chain = choice.target, choice.chain
        self.spin += 1
        target.picks += 1
        self._charge(target, len(chain) - choice.hits if chain else choice.empty)
        target.active.add(chain)
        for image in choice.images:
            target.images[image] = None
            target.images.move_to_end(image)
            if len(target.images) > IMAGES_KEPT:
                target.images.popitem(last=False)
        until = now + PROMISE_SECONDS
        self.index.promise(target.slot, chain, choice.hits, until)
        target.slot.used = now
        return Held(self, choice, until)

    def end(self, choice: Choice, until: float, now: float) -> None:
        """The attempt is over; what was promised and is not announced soon is void."""
        choice.target.active.remove(choice.chain)
        if choice.hits < len(choice.chain):
            self._lapsing.append((now + GRACE_SECONDS, until, choice.target.slot, choice.chain, choice.hits))
        self.tick(now)

    def tick(self, now: float) -> None:
        """Void the promises whose grace is over."""
        while self._lapsing and self._lapsing[0][0] <= now:
            _, until, slot, chain, start = self._lapsing.popleft()
            self.lapsed += self.index.lapse(slot, chain, start, until)

    def _charge(self, target: Target, blocks: float) -> None:
        left = self.recent(target) * DECAY
        value = (left if left >= FORGOTTEN else 0.0) + blocks
        self.scale *= DECAY
        if self.scale < _SMALLEST_SCALE:
            for other in self.targets():
                other.recent = other.recent * self.scale
            self.scale = 1.0
        target.recent = value / self.scale


class Held:
    """A prompt in flight on a target."""

    __slots__ = ("_book", "_choice", "_until")

    def __init__(self, book: KvBook, choice: Choice, until: float) -> None:
        self._book = book
        self._choice: Choice | None = choice
        self._until = until

    def release(self, now: float) -> None:
        """Once, at the end; a second call does nothing."""
        choice, self._choice = self._choice, None
        if choice is not None:
            self._book.end(choice, self._until, now)
