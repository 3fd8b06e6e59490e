"""A fleet in simulated time: engine models, the routing core, and requests that come when they are due.

One loop over the next thing that happens: an engine has news, a conversation goes on, a new one begins. Nothing
reads a clock, so the same requests give the same figures whatever the machine.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from infera_cli.errors import AllFull, NoRoutableWorker
from infera_cli.simulator.engine import EngineModel, Profile
from infera_cli.simulator.router import Open, Part, Router


class Talk(Protocol):
    """A conversation. Its first request is due `at` seconds, never before the talk that came before; the others
    follow the answers, at their own times if these are later. `session` is its session key."""

    @property
    def at(self) -> float:
        """When it begins."""
    @property
    def session(self) -> str | None:
        """Its key."""
    @property
    def turns(self) -> tuple[Part, ...]:
        """Its requests."""


class Log:
    """What came of every request, a column a figure; rows in the order of their ends. Times are seconds."""

    def __init__(self) -> None:
        self.sent, self.ttft, self.e2el = array("d"), array("d"), array("d")
        self.prompt, self.cached, self.output = array("l"), array("l"), array("l")
        self.worker = array("l")
        self.too_long = 0
        """Requests that no engine can ever hold."""

    def __len__(self) -> int:
        return len(self.sent)


class _Sent:
    """A request on its way."""

    __slots__ = ("at", "cached", "first", "index", "open", "part", "talk", "turn")

    def __init__(self, talk: Talk, turn: int, at: float) -> None:
        self.talk = talk
        self.turn = turn
        self.part = talk.turns[turn]
        self.at = at
        self.first = at
        self.cached = 0
        self.index = 0
        self.open: Open | None = None


class Fleet:
    """Engines of one profile behind `router`. Run it once."""

    def __init__(self, profile: Profile, router: Router) -> None:
        workers = len(router.pool.workers)
        self.log = Log()
        self.engines = [EngineModel(profile, record=router.records) for _ in range(workers)]
        self.busy = [0.0] * workers
        """Seconds in which an engine had something to do."""
        self.now = 0.0
        self._router = router
        self._profile = profile
        self._due: list[float | None] = [None] * workers
        self._since = [0.0] * workers
        self._inside = [0] * workers
        self._wakes: list[tuple[float, int]] = []
        self._later: list[tuple[float, int, Talk, int]] = []
        self._flying: dict[str, _Sent] = {}
        self._parked: deque[_Sent] = deque()
        self._count = 0
        self._callers: Iterator[Talk] | None = None
        self._pause = 0.0

    # ── ways to load it ──────────────────────────────────────────────────────────────────────────────
    def run(self, talks: Iterable[Talk]) -> Log:
        """Open loop: every talk begins when it is due."""
        for talk in talks:
            self._until(talk.at)
            self.now = talk.at
            self._begin(talk, 0, talk.at)
        self._until(inf)
        return self.log

    def run_callers(self, talks: Iterable[Talk], callers: int, pause: float = 0.0) -> Log:
        """Closed loop: so many callers, each beginning a talk `pause` seconds after its last one is over."""
        self._callers, self._pause = iter(talks), pause
        for _ in range(callers):
            self._call(0.0)
        self._until(inf)
        return self.log

    def _call(self, now: float) -> None:
        talk = next(self._callers, None) if self._callers is not None else None
        if talk is not None:
            self._later_on(talk, 0, now)

    # ── the loop ─────────────────────────────────────────────────────────────────────────────────────
    def _until(self, limit: float) -> None:
        """All that happens up to `limit`, in order; engines first where instants are equal."""
        wakes, later, due = self._wakes, self._later, self._due
        while True:
            wake = wakes[0][0] if wakes else inf
            follow = later[0][0] if later else inf
            if wake <= follow:
                if wake > limit or wake == inf:
                    return
                _, index = heappop(wakes)
                if due[index] == wake:
                    self._wake(index, wake)
            elif follow > limit:
                return
            else:
                self.now, _, talk, turn = heappop(later)
                self._begin(talk, turn, self.now)

    def _wake(self, index: int, now: float) -> None:
        self.now = now
        engine, flying = self.engines[index], self._flying
        over: list[_Sent] = []
        for happening in engine.advance(now):
            if happening.kind == "first":
                one = flying[happening.id]
                one.first, one.cached = happening.time, happening.cached
            elif happening.kind == "finished":
                over.append(flying.pop(happening.id))
        if self._router.records:
            self._router.heard(index, engine.cache.events(), now)
        self._plan(index)
        for one in over:
            self._end(one, now)

    def _plan(self, index: int) -> None:
        at = self.engines[index].next_event_time()
        if at != self._due[index]:
            self._due[index] = at
            if at is not None:
                heappush(self._wakes, (at, index))

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────
    def _later_on(self, talk: Talk, turn: int, at: float) -> None:
        self._count += 1
        heappush(self._later, (at, self._count, talk, turn))

    def _begin(self, talk: Talk, turn: int, now: float) -> None:
        one = _Sent(talk, turn, now)
        if one.part.prompt + one.part.output > self._profile.tokens:
            self.log.too_long += 1
            self._next(one, now)
        else:
            self._send(one, now)

    def _send(self, one: _Sent, now: float) -> None:
        router, part = self._router, one.part
        router.look(self.engines, now)
        try:
            one.open = router.send(part, one.talk.session, now)
        except (AllFull, NoRoutableWorker):
            self._parked.append(one)      # it waits in the router for a place, as in `serve`
            return
        index = one.index = one.open.number
        self._count += 1
        name = str(self._count)
        self._flying[name] = one
        if not self._inside[index]:
            self._since[index] = now
        self._inside[index] += 1
        self.engines[index].submit(name, part.prompt, part.output, part.chain, now)
        self._plan(index)

    def _end(self, one: _Sent, now: float) -> None:
        assert one.open is not None  # noqa: S101 - it was sent
        index, log = one.index, self.log
        self._router.done(one.open, now)
        self._inside[index] -= 1
        if not self._inside[index]:
            self.busy[index] += now - self._since[index]
        log.sent.append(one.at)
        log.ttft.append(one.first - one.at)
        log.e2el.append(now - one.at)
        log.prompt.append(one.part.prompt)
        log.cached.append(one.cached)
        log.output.append(one.part.output)
        log.worker.append(index)
        self._next(one, now)
        if self._parked:
            self._send(self._parked.popleft(), now)

    def _next(self, one: _Sent, now: float) -> None:
        """What follows the end of a request: the talk's next turn, or the caller's next talk."""
        talk, turn = one.talk, one.turn + 1
        if turn < len(talk.turns):
            part = talk.turns[turn]
            self._later_on(talk, turn, max(now + part.think, talk.at + part.after))
        elif self._callers is not None:
            self._call(now + self._pause)
