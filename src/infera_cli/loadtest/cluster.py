"""Program: one benchmark over several machines, through locust's own master and workers.

`python -m infera_cli.loadtest.cluster master JOB SPOOL HOST:PORT WORKERS` speaks to its parent as child.py
does. `… cluster worker HOST:PORT` joins it, runs its part, and sends its samples back. The master tells
each worker its part, waits until all are ready, and says when: an instant from now, in each machine's own
clock, so parts start within the delay of one message of each other.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import gevent
import gevent.event
import msgspec
from locust.runners import MasterRunner, WorkerRunner

from infera_cli.errors import InferaError
from infera_cli.loadtest import job as jobs
from infera_cli.loadtest.child import listen, report
from infera_cli.loadtest.job import Progress, together
from infera_cli.loadtest.load import Load, environment

HEAD_START = 1.0        # seconds between "go" and the first arrival
PATIENCE = 600.0        # seconds to wait for machines to join
JOB, GO, STOP, SAMPLES, SAYS = "infera_job", "infera_go", "infera_stop", "infera_samples", "infera_says"


class Master:
    """Hands out parts, gathers samples, and speaks for all workers."""

    def __init__(self, runner: MasterRunner, job: jobs.Job, spool: int, workers: int) -> None:
        self._runner, self._job, self._spool, self._workers = runner, job, spool, workers
        self._parts: dict[str, Progress] = {}
        self.ready = gevent.event.Event()
        self.over = gevent.event.Event()
        runner.register_message(SAMPLES, self._samples)
        runner.register_message(SAYS, self._says)

    def gather(self) -> None:
        """Wait for the machines and give each its part. Raises TimeoutError."""
        with gevent.Timeout(PATIENCE, TimeoutError("not all machines joined in time")):
            while len(self._runner.clients.ready) < self._workers:
                gevent.sleep(0.1)
        for part, client in enumerate(sorted(node.id for node in self._runner.clients.ready)):
            self._parts[client] = Progress(state="starting")
            content = jobs.pack(self._job.for_part(part, self._workers))
            self._runner.send_message(JOB, {"job": content}, client_id=client)

    def go(self) -> None:
        """Start everywhere."""
        for client in self._parts:
            self._runner.send_message(GO, {"in": HEAD_START}, client_id=client)
        self._runner.start(self._workers, spawn_rate=self._workers)

    def stop(self) -> None:
        """End everywhere, keeping what was measured."""
        for client in self._parts:
            self._runner.send_message(STOP, None, client_id=client)

    def watch(self) -> None:
        """A machine that vanishes ends the run: the load is no longer what was asked for."""
        while not self.over.is_set():
            gevent.sleep(0.5)
            known = self._runner.clients
            gone = [part for part in self._parts if part not in known or known[part].state == "missing"]
            lost = [part for part in gone if self._parts[part].state != "done"]
            if lost:
                report(Progress(state="failed", message=f"{len(lost)} load machine(s) were lost in mid-run"))
                self.over.set()

    def _samples(self, environment: Any, msg: Any, **_: Any) -> None:
        data: bytes = msg.data["samples"]
        while data:
            data = data[os.write(self._spool, data):]

    def _says(self, environment: Any, msg: Any, **_: Any) -> None:
        said = msgspec.json.decode(msg.data["progress"], type=Progress)
        self._parts[msg.node_id] = said
        if said.state == "failed":
            report(said)
            self.over.set()
            return
        whole = together(list(self._parts.values()))
        if whole.state == "ready":
            self.ready.set()
        if whole.state == "done":
            self.over.set()
        elif whole.state != "starting":
            report(whole)

    def last_words(self) -> Progress:
        """The final state of all."""
        return together(list(self._parts.values()))


def master(job_path: str, spool_path: str, bind: str, workers: str) -> int:
    """Lead a benchmark over `workers` machines."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host, _, port = bind.rpartition(":")
    job = jobs.read(Path(job_path))
    spool = os.open(spool_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    runner = environment().create_master_runner(host or "*", int(port))
    lead = Master(runner, job, spool, int(workers))
    begin: gevent.event.AsyncResult[float | None] = gevent.event.AsyncResult()
    gevent.spawn(listen, lead, begin)
    try:
        lead.gather()
    except TimeoutError as error:
        report(Progress(state="failed", message=str(error)))
        return 1
    gevent.spawn(lead.watch)
    if begin.get() is not None:
        lead.go()
        lead.over.wait()
    last = lead.last_words()
    last.state = "done"
    report(last)
    runner.quit()
    os.close(spool)
    return 0


class Part:
    """A worker machine's side."""

    def __init__(self, runner: WorkerRunner, load: Load) -> None:
        self._runner, self._load = runner, load
        self.over = gevent.event.Event()
        runner.register_message(JOB, self._job, concurrent=True)
        runner.register_message(GO, self._go)
        runner.register_message(STOP, self._stop)

    def _job(self, environment: Any, msg: Any, **_: Any) -> None:
        try:
            self._load.prepare(jobs.unpack(msg.data["job"]))
        except InferaError as error:
            self.says(Progress(state="failed", message=error.message))

    def _go(self, environment: Any, msg: Any, **_: Any) -> None:
        self._load.start_at(perf_counter() + float(msg.data["in"]))

    def _stop(self, environment: Any, msg: Any, **_: Any) -> None:
        self._load.stop()
        self.over.set()

    def says(self, progress: Progress) -> None:
        """Tell the master how it goes."""
        self._runner.send_message(SAYS, {"progress": msgspec.json.encode(progress)})

    def samples(self, data: bytes) -> None:
        """Send samples."""
        self._runner.send_message(SAMPLES, {"samples": data})


def worker(address: str) -> int:
    """Join the master at HOST:PORT for one benchmark."""
    host, _, port = address.rpartition(":")
    env = environment()
    runner = env.create_worker_runner(host, int(port))
    load = Load(env)
    part = Part(runner, load)
    load.connect(part.samples, part.says)
    gevent.wait([load.over, part.over], count=1)
    gevent.sleep(0.5)       # the last message leaves before the connection does
    runner.quit()
    return 0


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    code = master(*rest[:4]) if role == "master" else worker(rest[0])
    sys.stdout.flush()
    os._exit(code)
