"""A machine that lends itself to a benchmark: the worker's side of cluster.py, from joining to being let go.

Tells its parent on stdout how it goes, as child.py does; the end of stdin ends it.
"""

from __future__ import annotations

import os
import time
from time import monotonic, perf_counter
from typing import Any

import gevent
import gevent.event
import gevent.os
import msgspec
from locust import runners
from locust.runners import WorkerRunner

from infera_cli.errors import InferaError
from infera_cli.loadtest import job as jobs
from infera_cli.loadtest.child import report
from infera_cli.loadtest.job import Progress
from infera_cli.loadtest.load import Load, LoadUser, environment

REMIND = 30.0       # seconds between two words about what is waited for
SILENCE = 15.0      # seconds without a word from the master after which it is gone
HERE, JOB, GO, STOP = "infera_here", "infera_job", "infera_go", "infera_stop"
SAMPLES, SAYS, OVER, LEFT = "infera_samples", "infera_says", "infera_over", "infera_left"


class Part:
    """Runs its part of one load after the other."""

    def __init__(self, runner: WorkerRunner, load: Load) -> None:
        self._runner, self._load = runner, load
        self._cell = 0
        self._busy = self._stopped = False      # with a load, or with getting ready for one
        self.ending: gevent.event.AsyncResult[str] = gevent.event.AsyncResult()
        for word, listener in ((JOB, self._job), (GO, self._go)):
            runner.register_message(word, listener, concurrent=True)
        for word, listener in ((STOP, self._stop), (OVER, self._end), (LEFT, self._end)):
            runner.register_message(word, listener)
        runner.send_message(HERE)       # locust counted this machine before it could hear of a job

    def _job(self, environment: Any, msg: Any, **_: Any) -> None:
        self._cell, self._busy, self._stopped = msg.data["cell"], True, False
        try:
            self._load.prepare(jobs.unpack(msg.data["job"]))
        except InferaError as error:
            self.says(Progress(state="failed", message=f"{os.uname().nodename}: {error.message}"))
        self._busy = False
        if self._stopped:
            self.says(Progress(state="done"))

    def _go(self, environment: Any, msg: Any, **_: Any) -> None:
        if self._stopped:
            return
        self._busy = True
        self._load.start_at(perf_counter() + float(msg.data["in"]))
        while self._runner.user_count:      # of the load before: it has had its last word, but locust counts it still
            gevent.sleep(0.01)              # and would start nobody
        self._runner.start_worker({LoadUser.__name__: 1})

    def _stop(self, environment: Any, msg: Any, **_: Any) -> None:
        self._stopped = True
        self._load.stop()
        if not self._busy:
            self.says(Progress(state="done"))

    def _end(self, environment: Any, msg: Any, **_: Any) -> None:
        self._load.stop()
        self.ending.set(msg.type)

    def says(self, progress: Progress) -> None:
        """Tell the master how it goes."""
        self._runner.send_message(SAYS, {"progress": msgspec.json.encode(progress), "cell": self._cell})

    def samples(self, data: bytes) -> None:
        """Send samples."""
        self._runner.send_message(SAMPLES, {"samples": data, "cell": self._cell})

    def watch(self) -> None:
        """A master that is silent for long is gone."""
        while True:
            gevent.sleep(1)
            heard = self._runner.last_heartbeat_timestamp
            if heard is not None and heard < time.time() - SILENCE:
                self.ending.set("")


def member(address: str, patience: str) -> int:
    """Join the benchmark at HOST:PORT, wherever it is in its making, and stay to its end."""
    host, _, port = address.rpartition(":")
    runners.CONNECT_RETRY_COUNT = 1 << 30       # how long to try is ours to say
    waiting = gevent.spawn(_wait, address, float(patience))
    joined: gevent.event.AsyncResult[WorkerRunner] = gevent.event.AsyncResult()
    parent = gevent.spawn(_listen, joined)
    env = environment()
    runner = env.create_worker_runner(host, int(port))
    gevent.kill(waiting)
    joined.set(runner)
    report(Progress(state="ready", message=f"joined the benchmark at {address}"))
    load = Load(env)
    part = Part(runner, load)
    load.connect(part.samples, part.says)
    gevent.spawn(part.watch)
    ending = part.ending.get()
    gevent.kill(parent)
    if ending == OVER:
        report(Progress(state="running", message=f"the benchmark at {address} is over"))
        report(Progress(state="done"))
        return 0
    how = "was ended before it was over" if ending == LEFT else f"has not said a word for {SILENCE:g} s"
    report(Progress(state="failed", message=f"the benchmark at {address} {how}"))
    return 1


def _wait(address: str, patience: float) -> None:
    until = monotonic() + patience
    while (left := until - monotonic()) > 0:
        report(Progress(state="starting", message=f"waiting for a benchmark at {address} (infera bench --master-bind)"))
        gevent.sleep(min(REMIND, left))
    report(Progress(state="failed", message=f"no benchmark was found at {address} within {patience:g} s"))
    os._exit(1)


def _listen(joined: gevent.event.AsyncResult[WorkerRunner]) -> None:
    """When the parent is gone, tell the master, and end."""
    while gevent.os.tp_read(0, 4096):
        pass
    runner = joined.get() if joined.ready() else None
    if runner is not None:
        runner.send_message("quit")
        gevent.sleep(0.2)       # the message leaves before the connection does
    os._exit(1)
