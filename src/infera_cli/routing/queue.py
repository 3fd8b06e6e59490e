"""Requests that wait for a place: the best first, and nobody for ever (replica-router §2.7; rulings 20).

Order: effective priority, then arrival. Effective is the priority plus one for each 10 s waited, at most 10. Within
one priority the longest waiting is always first, so that looking at eleven heads is enough, however many wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from math import inf
from typing import Generic, TypeVar

from infera_cli.errors import TooManyRequests

HIGHEST = 10
AGE_SECONDS = 10.0
LIMIT = 1024
RETRY_AFTER = 1.0

T = TypeVar("T")
Key = tuple[str | None, str | None]
"""A model, and the one node that a request insists on, None for any."""


class Waiting(Generic[T]):
    """One place in the queue. `age` is when its effective priority would have been zero."""

    __slots__ = ("age", "item", "key", "number", "priority", "since")

    def __init__(self, item: T, key: Key, priority: int, number: int, since: float) -> None:
        self.item = item
        self.key = key
        self.priority = priority
        self.number = number
        self.since = since
        self.age = since - AGE_SECONDS * priority

    def effective(self, now: float) -> int:
        """Its priority with what it waited."""
        return min(HIGHEST, int((now - self.age) // AGE_SECONDS))


_NOBODY = 1 << 62
_STEP = 1 << 48


class _Lane(Generic[T]):
    """Those who wait under one key: by priority, and in each by arrival.

    `_ranks` holds one number for the head of each priority, the smallest being the best; it changes when the head
    does, and when the head has waited for another ten seconds.
    """

    __slots__ = ("_ranks", "_stale", "_until", "count", "levels")

    def __init__(self) -> None:
        self.levels: list[OrderedDict[int, Waiting[T]]] = [OrderedDict() for _ in range(HIGHEST + 1)]
        self.count = 0
        self._ranks = [_NOBODY] * len(self.levels)
        self._stale: list[int] = []
        self._until = inf

    def add(self, waiting: Waiting[T], *, front: bool = False) -> None:
        level = self.levels[waiting.priority]
        level[waiting.number] = waiting
        self.count += 1
        if front:
            level.move_to_end(waiting.number, last=False)
        if front or len(level) == 1:
            self._stale.append(waiting.priority)

    def remove(self, waiting: Waiting[T]) -> bool:
        gone = self.levels[waiting.priority].pop(waiting.number, None)
        if gone is None:
            return False
        self.count -= 1
        self._stale.append(waiting.priority)
        return True

    def best_rank(self, now: float) -> int:
        """The smallest rank; the lane must not be empty."""
        if now >= self._until:
            self._until = inf
            self._stale = list(range(HIGHEST + 1))
        ranks, stale = self._ranks, self._stale
        while stale:
            priority = stale.pop()
            ranks[priority] = self._rank(self.levels[priority], now)
        return min(ranks)

    def head(self, rank: int) -> Waiting[T]:
        """Who has that rank."""
        level = self.levels[self._ranks.index(rank)]
        return level[next(iter(level))]

    def _rank(self, level: OrderedDict[int, Waiting[T]], now: float) -> int:
        if not level:
            return _NOBODY
        head = level[next(iter(level))]
        effective = int((now - head.age) // AGE_SECONDS)
        if effective >= HIGHEST:
            return head.number - HIGHEST * _STEP
        until = head.age + AGE_SECONDS * (effective + 1)
        self._until = min(self._until, until)
        return head.number - effective * _STEP


class _Line(Generic[T]):
    """Who waits for one model: for any node, and for one node each."""

    __slots__ = ("bound", "count", "free")

    def __init__(self) -> None:
        self.free: _Lane[T] = _Lane()
        self.bound: dict[str, _Lane[T]] = {}
        self.count = 0

    def lane(self, node: str | None) -> _Lane[T]:
        if node is None:
            return self.free
        lane = self.bound.get(node)
        if lane is None:
            lane = self.bound[node] = _Lane()
        return lane

    def open_to(self, node: str | None) -> list[_Lane[T]]:
        lanes = [self.free] if self.free.count else []
        if self.bound:
            lanes += [lane for name, lane in self.bound.items() if lane.count and node in {None, name}]
        return lanes


class Queue(Generic[T]):
    """All who wait, by model and by the node they insist on; at most `limit` a model."""

    __slots__ = ("_arrivals", "_lines", "limit", "size")

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.size = 0
        """How many wait; for reading."""
        self._lines: dict[str | None, _Line[T]] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return self.size

    def count(self, model: str | None) -> int:
        """Who waits for that model."""
        line = self._lines.get(model)
        return 0 if line is None else line.count

    @property
    def models(self) -> list[str | None]:
        """Models that somebody waits for."""
        return list(self._lines)

    def put(self, item: T, model: str | None, priority: int, now: float, *, only: str | None = None) -> Waiting[T]:
        """Wait, `only` for that node where it is named. Raises TooManyRequests at the limit."""
        if self.count(model) >= self.limit:
            raise TooManyRequests(
                f"{self.limit} requests wait for this model already (--queue-limit); try again shortly.",
                code="queue_full", retry_after=RETRY_AFTER,
            )  # fmt: skip
        self._arrivals += 1
        waiting = Waiting(item, (model, only), priority, self._arrivals, now)
        self._enter(waiting, front=False)
        return waiting

    def put_back(self, waiting: Waiting[T]) -> None:
        """It was taken and found no place after all: first of its priority again."""
        self._enter(waiting, front=True)

    def take(self, models: Iterable[str | None], node: str | None, now: float) -> Waiting[T] | None:
        """The best of those who wait for one of `models` and may go to `node` (None: to any); None without any.

        A request that insists on another node holds nobody up.
        """
        best: Waiting[T] | None = None
        best_rank = _NOBODY
        for model in models:
            line = self._lines.get(model)
            if line is not None:
                for lane in line.open_to(node):
                    rank = lane.best_rank(now)
                    if rank < best_rank:
                        best_rank, best = rank, lane.head(rank)
        if best is not None:
            self.drop(best)
        return best

    def drop(self, waiting: Waiting[T]) -> None:
        """It waits no more: taken, its client left, or its time is over; twice is no fault."""
        model, node = waiting.key
        line = self._lines.get(model)
        if line is None or not line.lane(node).remove(waiting):
            return
        self.size -= 1
        line.count -= 1
        if not line.count:
            del self._lines[model]
        elif node is not None and not line.bound[node].count:
            del line.bound[node]

    def everybody(self) -> list[Waiting[T]]:
        """All who wait, in no order."""
        lanes = [lane for line in self._lines.values() for lane in (line.free, *line.bound.values())]
        return [one for lane in lanes for level in lane.levels for one in level.values()]

    def _enter(self, waiting: Waiting[T], *, front: bool) -> None:
        model, node = waiting.key
        line = self._lines.get(model)
        if line is None:
            line = self._lines[model] = _Line()
        self.size += 1
        line.count += 1
        line.lane(node).add(waiting, front=front)
