"""Program: one benchmark over several machines, through locust's own master and workers.

`python -m infera_cli.loadtest.cluster master HOST:PORT WORKERS PATIENCE` speaks to its parent as child.py does, for one
load after the other: it hears `job [JOB, SPOOL]`, `go INSTANT`, `stop`, and at the very end `over`. `… cluster worker
HOST:PORT PATIENCE` (member.py) joins it, runs its part of every load, and sends its samples back. The master tells each
worker its part, waits until all are ready, and says when: an instant from now, in each machine's own clock, so parts
start within the delay of one message of each other.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import gevent
import gevent.event
import gevent.os
import gevent.queue
import msgspec
from locust.exception import RPCError
from locust.runners import MasterRunner

from infera_cli.loadtest import job as jobs
from infera_cli.loadtest.job import Progress, together
from infera_cli.loadtest.load import environment
from infera_cli.loadtest.member import GO, HERE, JOB, LEFT, OVER, SAMPLES, SAYS, STOP, member

HEAD_START = 1.0        # seconds between "go" and the first arrival
REMIND = 30.0           # seconds between two words about who is missing
SILENCE = 8             # seconds without a heartbeat after which a machine is lost
ENDING = 10.0           # seconds that machines may take to end when one of them was lost


class Lonely(Exception):
    """Not all machines came."""


class Master:
    """Hands out parts, gathers samples, and speaks for all workers."""

    def __init__(
        self, runner: MasterRunner, workers: int, bind: str, patience: float, words: gevent.queue.Queue[list[str]]
    ) -> None:
        self._words = words
        self._runner, self._workers, self._bind, self._patience = runner, workers, bind, patience
        self._parts: dict[str, Progress] = {}
        self._here: set[str] = set()
        self._lost: set[str] = set()
        self._spool, self._cell = -1, 0
        self._stopped = False
        self._over = gevent.event.Event()
        runner.register_message(HERE, self._is_here)
        runner.register_message(SAMPLES, self._samples)
        runner.register_message(SAYS, self._says)

    def gather(self) -> None:
        """Wait for the machines. Raises Lonely."""
        until, next_word = monotonic() + self._patience, monotonic()
        while len(joined := self._joined()) < self._workers and not self._stopped:
            now = monotonic()
            said = f"{len(joined)} of {self._workers} load machines have joined at {self._bind}"
            if now >= until:
                raise Lonely(f"{said} within {self._patience:g} s (infera bench worker --master HOST:PORT)")
            if now >= next_word:
                report(Progress(state="starting", message=f"{said}; waiting for the others"))
                next_word = now + REMIND
            gevent.sleep(0.1)
        if not self._stopped:
            self._parts = {client: Progress(state="starting") for client in joined[: self._workers]}

    def _joined(self) -> list[str]:
        return sorted(node.id for node in self._runner.clients.ready if node.id in self._here)

    def _is_here(self, environment: Any, msg: Any, **_: Any) -> None:
        self._here.add(msg.node_id)

    def load(self, job: jobs.Job, spool: int) -> Progress:
        """One load from beginning to end; the last words on it. Raises Lonely."""
        self._spool, self._stopped = spool, False
        self._cell += 1
        self._over.clear()
        if self._parts:
            self._parts = {client: Progress(state="starting") for client in self._parts}
        else:
            self.gather()
        for part, client in enumerate(self._parts):
            data = {"job": jobs.pack(job.for_part(part, self._workers)), "cell": self._cell}
            self._runner.send_message(JOB, data, client_id=client)
        watcher = gevent.spawn(self._watch)
        if self._words.get()[0] == "go" and not self._stopped:
            self._tell(GO, {"in": HEAD_START})
        else:
            self.stop()
        self._over.wait(None if self._parts else 0)
        gevent.kill(watcher)
        last = together(list(self._parts.values()))
        last.state = "done"
        if self._lost:
            many = f"{len(self._lost)} of {self._workers}"
            last.message = f"{many} load machines were lost in mid-run; the load was stopped"
        return last

    def stop(self) -> None:
        """End everywhere, keeping what was measured."""
        self._stopped = True
        self._tell(STOP, None)

    def dismiss(self, word: str) -> None:
        """Let the machines go, the ones that had no part as well."""
        for client in list(self._runner.clients):
            self._runner.send_message(word, None, client_id=client)
        gevent.sleep(0.2)       # the message leaves before the connection does

    def _tell(self, word: str, data: Any) -> None:
        for client in self._parts:
            if client not in self._lost:
                self._runner.send_message(word, data, client_id=client)

    def _watch(self) -> None:
        """A machine that vanishes ends the load: it is no longer what was asked for."""
        until = None
        while not self._over.is_set():
            gevent.sleep(0.5)
            known = self._runner.clients
            gone = {part for part in self._parts if part not in known or known[part].heartbeat < 3 - SILENCE}
            if fresh := {part for part in gone - self._lost if self._parts[part].state != "done"}:
                self._lost |= fresh
                for part in fresh:
                    self._parts[part].state = "done"
                self.stop()
                self._words.put(["stop"])
                until = monotonic() + ENDING
            self._look()
            if until is not None and monotonic() > until:
                self._over.set()

    def _samples(self, environment: Any, msg: Any, **_: Any) -> None:
        if msg.data["cell"] != self._cell or self._over.is_set():
            return
        data: bytes = msg.data["samples"]
        while data:
            data = data[os.write(self._spool, data):]

    def _says(self, environment: Any, msg: Any, **_: Any) -> None:
        known = msg.node_id in self._parts and msg.node_id not in self._lost
        if msg.data["cell"] != self._cell or not known or self._over.is_set():
            return
        said = msgspec.json.decode(msg.data["progress"], type=Progress)
        if said.state == "failed":
            report(said)
            self._words.put(["stop"])
            self._over.set()
            return
        self._parts[msg.node_id] = said
        whole = together(list(self._parts.values()))
        if whole.state not in ("starting", "done"):
            report(whole)
        self._look()

    def _look(self) -> None:
        if all(part.state == "done" for part in self._parts.values()):
            self._over.set()


def master(bind: str, workers: str, patience: str) -> int:
    """Lead a benchmark over `workers` machines, load after load."""
    host, _, port = bind.rpartition(":")
    try:
        runner = environment().create_master_runner(host or "*", int(port))
    except (RPCError, SystemExit, OSError) as error:
        why = "the port is taken" if isinstance(error, SystemExit) else str(error).removeprefix("Socket bind failure: ")
        report(Progress(state="failed", message=f"cannot listen at {bind} (--master-bind): {why}"))
        return 1
    heard: gevent.queue.Queue[list[str]] = gevent.queue.Queue()
    lead = Master(runner, int(workers), bind, float(patience), heard)
    gevent.spawn(_hear, heard, lead)
    while True:
        word, *rest = heard.get()
        if word == "job":
            paper, place = msgspec.json.decode(rest[0], type=tuple[str, str])
            spool = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                last = lead.load(jobs.read(Path(paper)), spool)
            except Lonely as error:
                last = Progress(state="failed", message=str(error))
            os.close(spool)
            report(last)


def _hear(heard: Any, lead: Master) -> None:
    """Pass on what the parent says, until it says no more; a stop is carried out at once."""
    rest, ending = b"", LEFT
    while data := gevent.os.tp_read(0, 4096):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line == b"stop":
                lead.stop()
            if line == b"over":
                ending = OVER
            heard.put(line.decode().split(" ", 1))
    lead.stop()
    lead.dismiss(ending)
    os._exit(0)


def report(progress: Progress) -> None:
    """Tell the parent; that it is gone is for `_hear` to notice, which tells the machines."""
    with contextlib.suppress(OSError):
        sys.stdout.buffer.write(msgspec.json.encode(progress) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)    # Ctrl-C is the parent's to handle
    logging.getLogger("locust").setLevel(logging.CRITICAL)      # what there is to tell, we tell
    role, *rest = sys.argv[1:]
    code = master(*rest[:3]) if role == "master" else member(*rest[:2])
    sys.stdout.flush()
    os._exit(code)
