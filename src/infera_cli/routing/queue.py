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
        self._stale: set[int] = set()
        self._until = inf

    def add(self, waiting: Waiting[T], *, front: bool = False) -> None:
        level = self.levels[waiting.priority]
        level[waiting.number] = waiting
        self.count += 1
        if front:
            level.move_to_end(waiting.number, last=False)
        if front or len(level) == 1:
            self._stale.add(waiting.priority)

    def remove(self, waiting: Waiting[T]) -> bool:
        gone = self.levels[waiting.priority].pop(waiting.number, None)
        if gone is None:
            return False
        self.count -= 1
        self._stale.add(waiting.priority)
        return True

    def best(self, now: float) -> tuple[int, Waiting[T]]:
        """(rank, who) of the best; the lane must not be empty."""
        if now >= self._until:
            self._until = inf
            self._stale.update(range(HIGHEST + 1))
        stale = self._stale
        while stale:
            priority = stale.pop()
            self._ranks[priority] = self._rank(self.levels[priority], now)
        rank = min(self._ranks)
        level = self.levels[self._ranks.index(rank)]
        return rank, level[next(iter(level))]

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


class Queue(Generic[T]):
    """All who wait, by model and by the node they insist on; at most `limit` a model."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._lanes: dict[Key, _Lane[T]] = {}
        self._counts: dict[str | None, int] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return sum(self._counts.values())

    def count(self, model: str | None) -> int:
        """Who waits for that model."""
        return self._counts.get(model, 0)

    @property
    def models(self) -> list[str | None]:
        """Models that somebody waits for."""
        return list(self._counts)

    def put(self, item: T, model: str | None, priority: int, now: float, *, only: str | None = None) -> Waiting[T]:
        """Wait, `only` for that node where it is named. Raises TooManyRequests at the limit."""
        if self.count(model) >= self.limit:
            raise TooManyRequests(
                f"{self.limit} requests wait for this model already (--queue-limit); try again shortly.",
                code="queue_full", retry_after=RETRY_AFTER,
            )  # fmt: skip
        self._arrivals += 1
        waiting = Waiting(item, (model, only), priority, self._arrivals, now)
        self._lane(waiting.key).add(waiting)
        self._counts[model] = self.count(model) + 1
        return waiting

    def put_back(self, waiting: Waiting[T]) -> None:
        """It was taken and found no place after all: first of its priority again."""
        self._lane(waiting.key).add(waiting, front=True)
        self._counts[waiting.key[0]] = self.count(waiting.key[0]) + 1

    def take(self, models: Iterable[str | None], node: str | None, now: float) -> Waiting[T] | None:
        """The best of those who wait for one of `models` and may go to `node` (None: to any); None without any.

        A request that insists on another node holds nobody up.
        """
        lanes = [lane for model in models for lane in self._open_lanes(model, node)]
        if not lanes:
            return None
        lane = lanes[0] if len(lanes) == 1 else min(lanes, key=lambda lane: lane.best(now)[0])
        best = lane.best(now)[1]
        lane.remove(best)
        self._left(best, lane)
        return best

    def drop(self, waiting: Waiting[T]) -> None:
        """It waits no more: its client left, or its time is over; once taken or dropped, that is no fault."""
        lane = self._lanes.get(waiting.key)
        if lane is not None and lane.remove(waiting):
            self._left(waiting, lane)

    def _left(self, waiting: Waiting[T], lane: _Lane[T]) -> None:
        if not lane.count:
            del self._lanes[waiting.key]
        model = waiting.key[0]
        if self._counts[model] == 1:
            del self._counts[model]
        else:
            self._counts[model] -= 1

    def everybody(self) -> list[Waiting[T]]:
        """All who wait, in no order."""
        return [one for lane in self._lanes.values() for level in lane.levels for one in level.values()]

    def _lane(self, key: Key) -> _Lane[T]:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
        return lane

    def _open_lanes(self, model: str | None, node: str | None) -> list[_Lane[T]]:
        if node is None:
            return [lane for key, lane in self._lanes.items() if key[0] == model]
        free, bound = self._lanes.get((model, None)), self._lanes.get((model, node))
        return [lane for lane in (free, bound) if lane is not None]

