"""The cost of infera-wire §4.4: what a target would have to compute for a prompt, and what it has to do already.

    cost(t) = w · (B − hits(t)) + w_mm · (images not held by t) + load(t)

The least (cost, load) wins; full ties go round (rulings 16). Where block sizes differ all of it is in tokens; an
image, or a prompt without a full block, then counts the same wherever it goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from infera_cli.routing.kv.targets import FORGOTTEN, Choice, Kind, KvBook, Seat, Target
from infera_cli.routing.pickers import least_in_turn
from infera_cli.routing.prefix import unit_of
from infera_cli.routing.prompt import Prompt
from infera_cli.routing.types import Ask, Pool, Role, Worker

BLOCKS_PER_IMAGE = 48


class KvWeights(NamedTuple):
    """What a missed block costs against a block of load; by role where prefill and decode differ."""

    overlap: float = 1.0
    prefill: float | None = None
    decode: float | None = None

    def of(self, role: Role) -> float:
        """The base weight of a role."""
        given = {"prefill": self.prefill, "decode": self.decode}.get(role)
        return self.overlap if given is None else given


class Weighed(NamedTuple):
    """A target in comparison."""

    cost: float
    load: float
    at: int
    target: Target
    hits: int
    chain: Sequence[int]
    empty: float


class KvAware:
    """Weighs pools for prompts over one book; looking changes nothing."""

    def __init__(self, book: KvBook, weights: KvWeights) -> None:
        self.book = book
        self._weights = weights

    # ── routing.types.Scorer ─────────────────────────────────────────────────────────────────────────
    def choose(
        self, ask: Ask, pool: Pool, outstanding: Sequence[int], turn: int, now: float
    ) -> tuple[int, str]:
        """See Scorer; the choice is left with the prompt."""
        choice = self.weigh(ask, pool, turn)
        if choice is None:
            return least_in_turn(pool, outstanding, turn), "load"
        return choice.at, f"{choice.hits}/{choice.blocks}" if choice.blocks else "load"

    def refuses(self, ask: Ask, worker: Worker, outstanding: Sequence[int], now: float) -> str | None:
        """See Scorer; nobody is refused."""
        return None

    def terms(
        self, ask: Ask, pool: Pool, outstanding: Sequence[int], now: float
    ) -> Sequence[tuple[str | None, dict[str, float]]]:
        """See Scorer; of a worker with several ranks, those of the best."""
        best: dict[int, Weighed] = {}
        for one in self._weighed(ask, pool, prompt_of(ask)):
            before = best.get(one.at)
            if before is None or (one.cost, one.load) < (before.cost, before.load):
                best[one.at] = one
        return [(None, self._terms(best[at]) if at in best else {}) for at in range(len(pool.workers))]

    # ── choosing ─────────────────────────────────────────────────────────────────────────────────────
    def weigh(self, ask: Ask, pool: Pool, turn: int) -> Choice | None:
        """The best target of the pool; None when none of it is known. The choice is left with the prompt."""
        prompt = prompt_of(ask)
        weighed = self._weighed(ask, pool, prompt, best=not prompt.images)
        if not weighed:
            return None
        best = weighed[0]
        if len(weighed) > 1:
            cost, load = min((one.cost, one.load) for one in weighed)
            ties = [one for one in weighed if one.cost == cost and one.load == load]
            best = ties[(turn + self.book.spin) % len(ties)]
        length = prompt.lengths.get(best.target.style, 0)
        choice = prompt.choice = Choice(
            best.at, best.target, best.hits, best.chain, length, prompt.images or (), best.empty
        )
        return choice

    def _terms(self, one: Weighed) -> dict[str, float]:
        pending = one.target.slot.pending
        terms = {
            "blocks": float(len(one.chain)),
            "hits": float(one.hits),
            "pending": float(sum(hash_ in pending for hash_ in one.chain[: one.hits])),
            "load": round(one.load, 3),
            "cost": round(one.cost, 3),
        }
        if one.target.rank is not None:
            terms["rank"] = float(one.target.rank)
        return terms

    # ── the formula ──────────────────────────────────────────────────────────────────────────────────
    def _weighed(self, ask: Ask, pool: Pool, prompt: Prompt, *, best: bool = False) -> list[Weighed]:
        """All targets in comparison; with `best`, of each kind only those that nobody of it is better than."""
        seats = self.book.seats(pool)
        if ask.only is not None and "#" in ask.only:
            seats = [(at, target) for at, target in seats if _is_named(target, ask.only)]
        if not seats:
            return []
        base = self._weights.of(pool.workers[0].spec.role) * prompt.factor
        weight = 0.0 if prompt.images is not None else base
        groups = _by_kind(seats, prompt)
        smallest = 1
        in_tokens = len(groups) > 1 and len({unit for _, unit in groups}) > 1
        if in_tokens:
            smallest = min((unit for _, unit in groups if unit), default=1)
        found: list[Weighed] = []
        for kind, members in groups.items():
            chain = prompt.chains.get(kind, ())
            unit = (kind[1] or smallest) if in_tokens else 1
            some = self._group(members, chain, weight, unit, smallest / unit, best=best)
            found = found + some if found else some
        if prompt.images:
            found = [self._with_images(one, prompt.images, base * BLOCKS_PER_IMAGE * smallest) for one in found]
        return found

    def _group(
        self, members: Sequence[Seat], chain: Sequence[int], weight: float, unit: int, empty: float, *, best: bool
    ) -> list[Weighed]:
        """Targets that hash alike; one whose page size is unknown is taken to have the largest known.

        `unit` is what a block counts: 1, or its tokens where sizes differ; `empty` blocks are what a prompt without a
        full one counts.
        """
        blocks, scale = len(chain), self.book.scale
        hits: dict[int, int] = self._hits(members, chain) if weight else {}
        found: list[Weighed] = []
        least = inf
        for at, target in members:
            load, recent = float(target.active.count), target.recent * scale
            if recent >= FORGOTTEN:
                load += recent
            held = hits.get(target.slot.number, 0)
            cost = (weight * (blocks - held) + load) * unit
            if best:
                if cost > least:
                    continue
                if cost < least:
                    least = cost
                    found.clear()
            found.append(Weighed(cost, load * unit, at, target, held, chain, empty))
        return found

    def _hits(self, members: Sequence[Seat], chain: Sequence[int]) -> dict[int, int]:
        """Leading blocks that each slot holds, by its number; slots without any are left out."""
        among = 0
        for _, target in members:
            among |= target.slot.bit
        hits: dict[int, int] = {}
        for bits, depth in self.book.index.depths(chain, among):
            left = bits
            while left:
                low = left & -left
                hits[low.bit_length() - 1] = depth
                left ^= low
        return hits

    @staticmethod
    def _with_images(one: Weighed, images: Sequence[int], weight: float) -> Weighed:
        missing = sum(image not in one.target.images for image in images)
        return one._replace(cost=one.cost + weight * missing)


def _is_named(target: Target, key: str) -> bool:
    """Whether `key`, `<worker id>#dp<rank>`, means the target; a worker without ranks is its own rank 0."""
    worker, _, rank = key.partition("#dp")
    return target.worker.id == worker and rank.isdecimal() and int(rank) == (target.rank or 0)


def _by_kind(seats: Sequence[Seat], prompt: Prompt) -> dict[Kind, Sequence[Seat]]:
    """Seats that hash alike, together; one whose page size is unknown is taken to have the largest of the prompt's."""
    first = seats[0][1]
    style, size = first.style, first.slot.block_size
    if size:
        for _, target in seats:
            if target.slot.block_size != size or target.style != style:
                break
        else:
            return {(style, unit_of(size)): seats}
    usual = max((unit for _, unit in prompt.chains), default=0)
    groups: dict[Kind, list[Seat]] = {}
    for seat in seats:
        groups.setdefault((seat[1].style, seat[1].unit or usual), []).append(seat)
    return dict(groups)


def prompt_of(ask: Ask) -> Prompt:
    """What is known of the request's tokens; nothing where nobody looked."""
    return ask.work if isinstance(ask.work, Prompt) else Prompt()
