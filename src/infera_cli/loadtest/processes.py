"""Load processes from the outside: start them, start them together, hear from them, end them.

A process is a child that speaks JSON lines (child.py, cluster.py). The first Ctrl-C or SIGTERM stops the
load and keeps what was measured; the second ends the children at once.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic, perf_counter
from typing import Self

import msgspec

from infera_cli.errors import ConfigError
from infera_cli.loadtest.job import Job, Progress, write

HEAD_START = 0.2        # seconds between the last process being ready and the first arrival
STOP_PATIENCE = 15.0    # seconds a child may take to put down its samples

Listener = Callable[[list[Progress]], None]
Word = tuple[int, Progress | None]


class Outcome(msgspec.Struct):
    """What is left of a load: spool files, each process's last words, and whether it was cut short."""

    spools: list[Path]
    last: list[Progress]
    interrupted: bool = False
    broken: str = ""

    @property
    def cpu_max(self) -> float:
        """The busiest process's share of a core."""
        return max((progress.cpu_max for progress in self.last), default=0.0)

    @property
    def cpu_mean(self) -> float:
        """The mean share of a core, over processes."""
        return sum(progress.cpu_mean for progress in self.last) / len(self.last) if self.last else 0.0


def local(job: Job, processes: int, folder: Path, listener: Listener) -> Outcome:
    """Run `job` in `processes` processes of this machine. Raises ConfigError when they cannot start."""
    commands, spools = [], []
    for part in range(processes):
        paper, spool = folder / f"job-{part}.bin", folder / f"spool-{part}.bin"
        write(job.for_part(part, processes), paper)
        commands.append([sys.executable, "-P", "-m", "infera_cli.loadtest.child", str(paper), str(spool)])
        spools.append(spool)
    return run(commands, spools, listener)


def clustered(job: Job, bind: str, workers: int, folder: Path, listener: Listener) -> Outcome:
    """Run `job` on `workers` machines that join at `bind` (HOST:PORT) through locust."""
    paper, spool = folder / "job.bin", folder / "spool.bin"
    write(job, paper)
    words = ["master", str(paper), str(spool), bind, str(workers)]
    command = [sys.executable, "-P", "-m", "infera_cli.loadtest.cluster", *words]
    return run([command], [spool], listener)


def run(commands: Sequence[Sequence[str]], spools: list[Path], listener: Listener) -> Outcome:
    """Start `commands`, let them begin at one instant, and follow them to the end."""
    with _Family(commands) as family:
        outcome = Outcome(spools, family.last)
        try:
            family.follow("ready", listener)
            family.tell(f"go {perf_counter() + HEAD_START!r}")
            family.follow("done", listener)
        except KeyboardInterrupt:
            outcome.interrupted = True
            family.tell("stop")
            with contextlib.suppress(KeyboardInterrupt):
                family.follow("done", listener, patience=STOP_PATIENCE)
        outcome.broken = family.broken
    return outcome


class _Family:
    """The children and what they say."""

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self._words: queue.Queue[Word] = queue.Queue()
        self.last = [Progress(state="starting") for _ in commands]
        self.broken = ""
        self._ended: set[int] = set()
        self._children = [
            subprocess.Popen(  # noqa: S603  # our own module
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
            for command in commands
        ]
        for number in range(len(self._children)):
            threading.Thread(target=self._listen, args=(number,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            with contextlib.suppress(OSError):
                if child.stdin is not None:
                    child.stdin.close()
        for child in self._children:
            try:
                child.wait(timeout=2)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            if child.stdout is not None:
                child.stdout.close()

    def tell(self, words: str) -> None:
        """Say one thing to every child."""
        for child in self._children:
            with contextlib.suppress(OSError):
                if child.stdin is not None:
                    child.stdin.write(words.encode() + b"\n")
                    child.stdin.flush()

    def follow(self, state: str, listener: Listener, patience: float | None = None) -> None:
        """Until every child that lives has said `state`. A child that dies in mid-run ends the run."""
        until = None if patience is None else monotonic() + patience
        for number, progress in self._hear(until):
            if progress is None:
                self._gone(number)
            else:
                self.last[number] = progress
                if progress.state == "failed":
                    raise ConfigError(progress.message)
                listener(self.last)
            if self._all(state):
                return

    def _hear(self, until: float | None) -> Iterator[Word]:
        while not self._all("done"):
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0:
                return
            # A wait without an end would not be interruptible by Ctrl-C everywhere.
            with contextlib.suppress(queue.Empty):
                yield self._words.get(timeout=min(left or 0.5, 0.5))

    def _gone(self, number: int) -> None:
        """A child closed its output: fine when it was done, else the load is no longer what was asked."""
        self._ended.add(number)
        if self.last[number].state != "done" and not self.broken:
            code = self._children[number].wait()
            self.broken = f"load process {number} died (exit code {code}); the others were stopped"
            self.tell("stop")

    def _all(self, state: str) -> bool:
        wanted = {state, "done"}
        return all(
            number in self._ended or progress.state in wanted for number, progress in enumerate(self.last)
        )

    def _listen(self, number: int) -> None:
        stream = self._children[number].stdout
        decoder = msgspec.json.Decoder(Progress)
        if stream is not None:
            with contextlib.suppress(ValueError):
                for line in stream:
                    with contextlib.suppress(msgspec.DecodeError):
                        self._words.put((number, decoder.decode(line)))
        self._words.put((number, None))


def join(master: str) -> int:
    """Run a worker for the benchmark led at HOST:PORT, to its end; its exit code. Raises ConfigError."""
    host, colon, port = master.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ConfigError(f"--master must look like HOST:PORT, not {master!r}")
    command = [sys.executable, "-P", "-m", "infera_cli.loadtest.cluster", "worker", master]
    return subprocess.run(command, check=False).returncode  # noqa: S603  # our own module
