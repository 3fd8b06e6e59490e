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

from infera_cli.errors import ConfigError, InferaError, UsageError
from infera_cli.loadtest.job import Job, Progress, write

HEAD_START = 0.2        # seconds between the last process being ready and the first arrival
STOP_PATIENCE = 15.0    # seconds a child may take to put down its samples
JOIN_PATIENCE = 600.0   # seconds in which machines and benchmark have to find each other

Listener = Callable[[list[Progress]], None]
Beginning = Callable[[], None]
"""Called when the warm-up is over everywhere, before the first measured request."""
Word = tuple[int, Progress | None]


class Failed(ConfigError):
    """A load process cannot do what it was asked for, and says why."""


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


def local(job: Job, processes: int, folder: Path, listener: Listener, begins: Beginning) -> Outcome:
    """Run `job` in `processes` processes of this machine. Raises ConfigError when they cannot start."""
    commands, spools = [], []
    for part in range(processes):
        paper, spool = folder / f"job-{part}.bin", folder / f"spool-{part}.bin"
        write(job.for_part(part, processes), paper)
        commands.append([sys.executable, "-P", "-m", "infera_cli.loadtest.child", str(paper), str(spool)])
        spools.append(spool)
    return run(commands, spools, listener, begins)


def run(commands: Sequence[Sequence[str]], spools: list[Path], listener: Listener, begins: Beginning) -> Outcome:
    """Start `commands`, let them begin at one instant, and follow them to the end."""
    with _Family(commands) as family:
        return _follow(family, spools, listener, begins)


def _follow(family: _Family, spools: list[Path], listener: Listener, begins: Beginning) -> Outcome:
    """One load from getting ready to the end."""
    outcome = Outcome(spools, family.last)
    try:
        family.follow("ready", listener)
        begins()
        family.tell(f"go {perf_counter() + HEAD_START!r}")
        family.follow("done", listener)
    except KeyboardInterrupt:
        outcome.interrupted = True
        family.tell("stop")
        with contextlib.suppress(KeyboardInterrupt):
            family.follow("done", listener, patience=STOP_PATIENCE)
    outcome.broken = family.broken
    return outcome


class Cluster:
    """Several machines that join at `bind` (HOST:PORT) through locust, and stay for one load after the other."""

    def __init__(self, bind: str, workers: int, patience: float = JOIN_PATIENCE) -> None:
        address("--master-bind", f"*{bind}" if bind.startswith(":") else bind)
        words = ["master", bind, str(workers), str(patience)]
        self._command = [sys.executable, "-P", "-m", "infera_cli.loadtest.cluster", *words]
        self._family: _Family | None = None

    def run(self, job: Job, folder: Path, listener: Listener, begins: Beginning) -> Outcome:
        """Run `job` on all machines; the first time wait for them. Raises ConfigError when they do not come."""
        if self._family is None:
            self._family = _Family([self._command])
        self._family.again()
        paper, spool = folder / "job.bin", folder / "spool.bin"
        write(job, paper)
        self._family.tell(f"job {msgspec.json.encode((str(paper), str(spool))).decode()}")
        return _follow(self._family, [spool], listener, begins)

    def close(self) -> None:
        """Let the machines go."""
        if self._family is not None:
            self._family.tell("over")
            self._family.end()
            self._family = None


class _Family:
    """The children and what they say."""

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self._words: queue.Queue[Word] = queue.Queue()
        self.last = [Progress(state="starting") for _ in commands]
        self.broken = ""
        self._stopping = False
        self._ended: set[int] = set()
        self._children: list[subprocess.Popen[bytes]] = []
        try:
            for number, command in enumerate(commands):
                self._children.append(subprocess.Popen(  # noqa: S603  # our own module
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
                ))
                threading.Thread(target=self._listen, args=(number,), daemon=True).start()
        except BaseException as fault:       # Ctrl-C, or one process too many: those that started do not stay
            self.end()
            if isinstance(fault, OSError):
                many = f"{len(self._children)} of {len(commands)} load processes"
                raise Failed(f"only {many} could be started: {fault.strerror}; use fewer --processes") from None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def again(self) -> None:
        """Another load begins."""
        self.last = [Progress(state="starting") for _ in self._children]

    def end(self) -> None:
        """Let go of the children: they end at the end of what they hear."""
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
        self._stopping = self._stopping or words == "stop"
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
                    raise Failed(progress.message)
                if progress.state == "done" and progress.message:
                    self.broken = self.broken or progress.message
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
            if code == 0 and self._stopping:    # it did as it was told
                return
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


def address(flag: str, text: str) -> None:
    """Refuse what is not HOST:PORT. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 1 << 16:
        raise UsageError(f"{flag} must look like HOST:PORT, not {text!r}")


def join(master: str, say: Callable[[str], None] = print, patience: float = JOIN_PATIENCE) -> int:
    """Lend this machine to the benchmark led at HOST:PORT, to its end; the exit code. Raises InferaError."""
    address("--master", master)
    command = [sys.executable, "-P", "-m", "infera_cli.loadtest.cluster", "worker", master, str(patience)]
    with _Family([command]) as family:
        try:
            family.follow("done", lambda last: say(last[0].message) if last[0].message else None)
        except Failed as failed:
            raise InferaError(failed.message) from None
        if family.broken:
            raise InferaError(family.broken)
    return 0
