"""Program: one load process on this machine. `python -m infera_cli.loadtest.child JOB SPOOL`

Tells its progress on stdout, a JSON value a line. Hears on stdin: `go INSTANT` (of the machine's monotonic
clock, which all processes share) and `stop`. The end of stdin is a stop: no load outlives who asked for it.
Locust patches the process when `load` imports it, before anything here opens a socket.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Protocol

import gevent
import gevent.os
import msgspec
from gevent.event import AsyncResult

from infera_cli.errors import InferaError
from infera_cli.loadtest import job as jobs
from infera_cli.loadtest.load import Load, environment

PARENT_GONE = 1


def report(progress: jobs.Progress) -> None:
    """Tell the parent; when there is none any more, end at once: locust would call whoever raises here again."""
    try:
        sys.stdout.buffer.write(msgspec.json.encode(progress) + b"\n")
        sys.stdout.buffer.flush()
    except OSError:
        os._exit(PARENT_GONE)


class Stoppable(Protocol):
    """What a `stop` goes to."""

    def stop(self) -> None:
        """End now, keeping what was measured."""


def listen(load: Stoppable, go: AsyncResult[float | None]) -> None:
    """Do what the parent says, until it says no more."""
    rest = b""
    while data := gevent.os.tp_read(0, 4096):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"go":
                go.set(float(number))
            elif word == b"stop":
                load.stop()
                go.set(None)
    load.stop()
    go.set(None)


def main(job_path: str, spool_path: str) -> int:
    """Run the job; the exit code is 0 when it was carried out, whatever the server answered."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)    # Ctrl-C is the parent's to handle
    try:
        job = jobs.read(Path(job_path))
    except FileNotFoundError:       # interrupted while this process started, the parent has put it away
        return PARENT_GONE
    with Path(spool_path).open("ab", buffering=0) as spool:
        env = environment()
        runner = env.create_local_runner()
        load = Load(env)
        load.connect(lambda data: _write_all(spool.fileno(), data), report)
        go: AsyncResult[float | None] = AsyncResult()
        gevent.spawn(listen, load, go)
        try:
            load.prepare(job)
        except InferaError as error:
            report(jobs.Progress(state="failed", message=error.message))
            return error.exit_code
        begin = go.get()
        if begin is None:
            report(jobs.Progress(state="done"))
            return 0
        load.start_at(begin)
        runner.start(1, spawn_rate=1)
        load.over.wait()    # and no runner.quit(): it walks the stack for 0.3 s to log who called it
    return 0


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data):]


if __name__ == "__main__":
    code = main(*sys.argv[1:3])
    sys.stdout.flush()
    os._exit(code)      # the thread that waits on stdin would hold up an ordinary exit
