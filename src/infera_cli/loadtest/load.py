"""A load process from the inside: dataset, locust user, spool, progress. Used by `child` and `cluster`.

Locust starts and counts the one driver user of the process and shows each request in its own statistics,
where people may watch them; no figure of ours comes from there (bench-and-cli §B4).
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import perf_counter

import gevent
import gevent.event
from locust import User, task
from locust.env import Environment
from locust.event import Events

from infera_cli.loadtest import datasets
from infera_cli.loadtest.driver import Driver
from infera_cli.loadtest.job import Job, Progress
from infera_cli.loadtest.meter import Meter
from infera_cli.workload.sample import Sample, pack

FLUSH = 0.5     # seconds between progress reports, and between writes
GC_EVERY = 10_000

Write = Callable[[bytes], None]
Report = Callable[[Progress], None]


class LoadEnvironment(Environment):
    """A locust environment that knows its load."""

    load: Load


class LoadUser(User):
    """The one user of a load process: it drives all requests itself."""

    environment: LoadEnvironment

    @task
    def drive(self) -> None:
        """Run the load to its end."""
        self.environment.load.drive()
        self.stop()


class Load:
    """One load process; `connect` it to where its samples and its progress go."""

    def __init__(self, environment: LoadEnvironment) -> None:
        self._environment = environment
        environment.load = self
        self._meter = Meter()
        self._waiting: list[bytes] = []
        self._driver: Driver | None = None
        self._begin = 0.0
        self._stopped = False
        self.over = gevent.event.Event()

    def connect(self, write: Write, report: Report) -> None:
        """`write` takes spool bytes, `report` takes progress."""
        self._write, self._report = write, report

    def prepare(self, job: Job) -> None:
        """Read the dataset and send the warm-up; ready afterwards. One load may follow another. Raises ConfigError."""
        self._meter, self._driver, self._stopped = Meter(), None, False
        self.over.clear()
        count = datasets.tokenizer(job.tokenizer)
        dataset = datasets.load(job.dataset, job.seed, count)
        self._driver = Driver(job, dataset, self._keep, count)
        if self._stopped:       # while the dataset was read
            self._driver.stop()
        self._driver.warm_up()
        gc.collect()
        gc.freeze()         # a full collection in mid-run is a pause in every figure
        gc.set_threshold(GC_EVERY, 20, 50)
        self._report(self._meter.progress("ready", 0))

    def start_at(self, begin: float) -> None:
        """Start at `begin` (`perf_counter` seconds); locust's user calls `drive`."""
        self._begin = begin

    def drive(self) -> None:
        """The whole measured run."""
        driver = self._driver
        if driver is None:
            return
        reporter = gevent.spawn(self._keep_reporting)
        try:
            self._meter.restart()
            driver.run(self._begin)
        finally:
            reporter.kill()     # and wait for its end: `gevent.kill` does not, and nothing may follow the last word
            self.flush()
            self._report(self._meter.progress("done", 0))
            self.over.set()

    def stop(self) -> None:
        """End now, keeping what was measured."""
        self._stopped = True
        if self._driver is not None:
            self._driver.stop()

    def flush(self) -> None:
        """Write what is waiting."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._write(b"".join(waiting))

    def _keep(self, sample: Sample) -> None:
        self._meter.see(sample)
        self._waiting.append(pack(sample))
        took = (sample.last if sample.last is not None else sample.end) - sample.sent
        self._environment.events.request.fire(  # type: ignore[no-untyped-call]
            request_type="POST", name="measured" if sample.measured else "warm-up", response_time=took * 1e3,
            response_length=sample.tokens()[0], context={},
            exception=RuntimeError(sample.outcome) if sample.failed else None,
        )

    def _keep_reporting(self) -> None:
        while True:
            gevent.sleep(FLUSH)
            self.flush()
            opened = self._driver.open if self._driver is not None else 0
            self._report(self._meter.progress("running", opened))


def environment() -> LoadEnvironment:
    """A locust environment with our one user class."""
    return LoadEnvironment(user_classes=[LoadUser], events=Events())  # type: ignore[no-untyped-call]


def soon(seconds: float) -> float:
    """An instant a little ahead."""
    return perf_counter() + seconds
