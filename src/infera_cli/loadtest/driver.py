"""The load itself: when to send, what to send, and the sample that is kept of it. Runs under gevent.

Open loop: every process walks the same absolute plan and takes each `parts`-th arrival. A request is built
before it is due, so that only sending is left to do at its instant. A full pool records `not_sent`; it
does not wait, which would hide a stall (bench-and-cli §B5; R167).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any, TypeVar

import gevent
from gevent.lock import BoundedSemaphore

from infera_cli.loadtest.conversation import Conversation
from infera_cli.loadtest.http import Client, Exchange, RunOver, Stalled
from infera_cli.loadtest.job import Job, Limits
from infera_cli.workload.answer import Answer
from infera_cli.workload.arrivals import ClosedLoop, OpenLoop, Replay, offsets, split
from infera_cli.workload.items import Dataset
from infera_cli.workload.requests import PATHS
from infera_cli.workload.sample import Sample
from infera_cli.workload.text import Count
from infera_cli.workload.text import dice as dice_of
from infera_cli.workload.traces import Trace

SWEEP = 0.05                # seconds between looks at stalled requests
WARMUP_BASE = 1_000_000_000  # item numbers of warm-up, so that no measured prefix gets warm
WARM_CALLERS = 16
SHORTEST_SLEEP = 0.0002
AHEAD = 1.0                 # seconds before it is due that an arrival is made, so that many at once can be

T = TypeVar("T")
Sink = Callable[[Sample], None]


class Driver:
    """Runs the share of one load process. `sink` gets every sample as soon as its request is over."""

    def __init__(self, job: Job, dataset: Dataset, sink: Sink, count: Count | None = None) -> None:
        self.job, self.dataset, self._sink, self._count = job, dataset, sink, count
        path = job.path or PATHS[job.shape.dialect]
        targets = [job.target, *(type(job.target)(url, job.target.headers) for url in job.direct)]
        connect, size = job.limits.connect, job.hard_cap + 1
        self._clients = [Client(target, path, connect_timeout=connect, size=size) for target in targets]
        self._names = ["", *job.direct]
        self._open: set[Any] = set()
        self._due: set[Any] = set()
        self._watched: dict[Any, tuple[Exchange, Answer]] = {}
        self._places: BoundedSemaphore | None = None
        self.freed = 0.0        # when the latest of these places came free (`perf_counter`)
        self._callers_of_warm_up = WARM_CALLERS
        if job.max_concurrency is not None:
            share = split(ClosedLoop(job.max_concurrency), job.part, job.parts)
            self._places = BoundedSemaphore(max(1, share))
            self._callers_of_warm_up = min(WARM_CALLERS, share)
        self._mine = turns(job)
        self._start = 0.0
        self._stopped = False
        self._measured = True

    @property
    def open(self) -> int:
        """Conversations going on."""
        return len(self._open)

    # ── the phases ───────────────────────────────────────────────────────────────────────────────────
    def warm_up(self) -> None:
        """Send what is not measured: some other prompts, or with `warm` the very plan."""
        self._start, self._measured = perf_counter(), False
        sweeper = gevent.spawn(self._sweep)
        indexes: list[int] = []
        if self.job.warmups:
            indexes += self._share(range(WARMUP_BASE, WARMUP_BASE + self.job.warmups))
        if self.job.warm:
            indexes += [index for index, _offset in self._plan()]
        self._callers(self._callers_of_warm_up, iter(indexes), 0.0)
        self._wait(None)
        gevent.kill(sweeper)
        self._measured = True

    def run(self, start: float) -> None:
        """Drive the load from `start` (`perf_counter` seconds) until it is over or stopped."""
        self._start = start
        sweeper = gevent.spawn(self._sweep)
        plan = self.job.arrivals
        until = None if plan.duration is None else start + plan.duration + self.job.grace
        if isinstance(plan, ClosedLoop):
            gevent.sleep(max(0.0, start - perf_counter()))
            indexes = self._share(itertools.count() if plan.count is None else range(plan.count))
            self._callers(split(plan, self.job.part, self.job.parts), indexes, plan.think)
        else:
            self._open_loop(math.inf if until is None else until)
        self._wait(until)
        gevent.kill(sweeper)
        for client in self._clients:
            client.close()

    def stop(self) -> None:
        """End now: what is open becomes incomplete."""
        self._stopped = True
        self._cut_off(block=False)

    # ── arrivals ─────────────────────────────────────────────────────────────────────────────────────
    def _plan(self) -> Iterator[tuple[int, float]]:
        """(item, offset) of every arrival of this part."""
        plan = self.job.arrivals
        if isinstance(plan, OpenLoop):
            every: Iterator[tuple[int, float]] = enumerate(offsets(plan, self.job.seed))
        elif isinstance(plan, Replay):
            every = self._replay(plan)
        else:
            every = ((index, 0.0) for index in range(plan.count or 0))
        return self._share(every)

    def _share(self, every: Iterable[T]) -> Iterator[T]:
        """What of `every` falls to this part."""
        return itertools.compress(every, itertools.cycle(self._mine)) if any(self._mine) else iter(())

    def _replay(self, plan: Replay) -> Iterator[tuple[int, float]]:
        assert isinstance(self.dataset, Trace)  # noqa: S101 - nothing else has times of its own
        size = self.dataset.size or 0
        for index in range(min(size, plan.count or size)):
            offset = self.dataset.at(index) / plan.speed
            if plan.duration is not None and offset > plan.duration:
                return
            yield index, offset

    def _open_loop(self, until: float) -> None:
        for index, offset in self._plan():
            conversation = Conversation(self, index, scheduled=offset)
            conversation.prepare()
            self._sleep_until(offset - AHEAD)
            if self._stopped or perf_counter() > until:
                return
            self._start_at(offset, conversation)
            gevent.sleep(0)     # what is open, and what is due, has a turn between two prompts

    def _start_at(self, offset: float, conversation: Conversation) -> None:
        """Let `conversation` begin at its instant, by a timer of its own: who only then starts a greenlet waits for a
        round of the event loop more, and a busy one takes milliseconds."""

        def arrive() -> None:
            self._due.discard(gevent.getcurrent())
            if len(self._open) >= self.job.hard_cap:
                self._sink(conversation.not_sent())
                return
            self._open.add(gevent.getcurrent())
            self._until_over(begin)

        def begin() -> None:
            self._sleep_until(offset)   # a timer may be early by a moment
            conversation.play()

        greenlet = gevent.Greenlet(arrive)
        self._due.add(greenlet)
        gevent.get_hub().loop.update_now()
        greenlet.start_later(max(0.0, self._start + offset - perf_counter()))

    def _callers(self, number: int, indexes: Iterator[int], think: float) -> None:
        plan = self.job.arrivals
        until = self._start + plan.duration if plan.duration is not None and self._measured else None

        def caller() -> None:
            due = perf_counter()
            for index in indexes:
                if self._stopped or (until is not None and perf_counter() >= until):
                    return
                due = Conversation(self, index, scheduled=None, due=due).play() + think
                gevent.sleep(max(0.0, due - perf_counter()))

        for _ in range(number):
            self._spawn(caller)

    def _sleep_until(self, offset: float) -> None:
        while not self._stopped:
            left = self._start + offset - perf_counter()
            if left <= SHORTEST_SLEEP:
                return
            gevent.sleep(min(left, 0.5))

    def _spawn(self, work: Callable[[], object]) -> None:
        greenlet = gevent.Greenlet(self._until_over, work)
        self._open.add(greenlet)
        greenlet.start()

    def _until_over(self, work: Callable[[], object]) -> None:
        try:
            work()
        except (RunOver, Stalled):
            return
        finally:
            self._open.discard(gevent.getcurrent())

    def _wait(self, until: float | None) -> None:
        """Until all is answered; at `until` (or on stop) the rest is cut off."""
        while self._open or self._due:
            left = None if until is None else max(0.0, until - perf_counter())
            gevent.joinall([*self._open, *self._due], timeout=min(left if left is not None else 1.0, 1.0))
            if (self._open or self._due) and (self._stopped or left == 0.0):
                self._cut_off(block=True)
                return

    def _cut_off(self, *, block: bool) -> None:
        """End what is open, and forget what is only due."""
        gevent.killall(list(self._due), block=False)
        self._due.clear()
        gevent.killall(list(self._open), exception=RunOver, block=block, timeout=5)

    # ── stalled requests ─────────────────────────────────────────────────────────────────────────────
    def _sweep(self) -> None:
        """One greenlet watches the time of all requests, instead of a timer in each."""
        limits = self.job.limits
        while True:
            gevent.sleep(SWEEP)
            now = perf_counter()
            for greenlet, (exchange, answer) in list(self._watched.items()):
                kind = _stalled(now, exchange, answer, limits)
                if kind:
                    gevent.get_hub().loop.run_callback(self._interrupt, greenlet, exchange, Stalled(kind))

    def _interrupt(self, greenlet: Any, exchange: Exchange, reason: Exception) -> None:
        """Throw into a request, unless it ended since that was decided."""
        if greenlet in self._watched and self._watched[greenlet][0] is exchange:
            greenlet.throw(reason)

    # ── one request ──────────────────────────────────────────────────────────────────────────────────
    def client_for(self, index: int) -> tuple[Client, str]:
        """The router; with `direct`, for one of every two arrivals a worker.

        Dice say which of them, and which worker: in step with the router's own turns, either half would find its worker
        busy or idle by that.
        """
        place, workers = 0, len(self._clients) - 1
        if workers:
            pair, turn = divmod(index // self.job.parts, 2)
            dice = dice_of(self.job.seed, "direct", self.job.part, pair)
            if dice.randrange(2) == turn:
                place = 1 + dice.randrange(workers)
        return self._clients[place], self._names[place]

    def exchange(self, client: Client, content: bytes, session: str | None, answer: Answer) -> Exchange:
        """Send one request, watched over."""
        me = gevent.getcurrent()
        exchange = Exchange()
        self._watched[me] = exchange, answer
        try:
            client.send(exchange, content, session, answer, stream=self.job.shape.stream)
        finally:
            del self._watched[me]
        return exchange

    def place(self) -> BoundedSemaphore | None:
        """Places below `--max-concurrency`; None when there is no such limit."""
        return self._places

    def keep(self, sample: Sample) -> None:
        """Hand a sample over."""
        self._sink(sample)

    @property
    def start(self) -> float:
        """The instant that sample times count from."""
        return self._start

    @property
    def measured(self) -> bool:
        """Whether this is more than warm-up."""
        return self._measured

    @property
    def count(self) -> Count | None:
        """Counts tokens of an answer, with a tokenizer."""
        return self._count


def turns(job: Job) -> list[bool]:
    """Which of so many arrivals in a row fall to the part of `job`.

    One by one to each part; where there are fewer callers (or places below `max_concurrency`), as many to a part as it
    has of these: a part without any would send nothing of its share.
    """
    limits = [job.max_concurrency] if job.max_concurrency is not None else []
    if isinstance(job.arrivals, ClosedLoop):
        limits.append(job.arrivals.concurrency)
    return [place % job.parts == job.part for place in range(min(limits, default=job.parts))]


def _stalled(now: float, exchange: Exchange, answer: Answer, limits: Limits) -> str:
    """At what a request takes too long, or an empty string."""
    if limits.total and now - exchange.sent > limits.total:
        return "total"
    if answer.last is None:
        return "first_token" if limits.first_token and now - exchange.sent > limits.first_token else ""
    return "idle" if limits.idle and now - exchange.last_data > limits.idle else ""
