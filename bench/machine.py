"""What is asked of the operating system: cores, processes, their CPU time and memory (Linux)."""

from __future__ import annotations

import os
import platform
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

TICK = 1.0 / os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def two_cores() -> tuple[int, int]:
    """The router's core, and the one for load and upstreams.

    Raises SystemExit where there is only one: sharing it would measure the scheduler.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("The benchmarks need two cores: one for the router, one for load and upstreams.")
    return cores[-1], cores[0]


def raise_file_limit() -> None:
    """As many open sockets as this user may have; children inherit it."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def describe() -> dict[str, str]:
    """Processor, kernel and interpreter, for the head of a table."""
    model = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return {
        "processor": model[0] if model else platform.machine(),
        "cores": str(os.cpu_count()),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


class Process:
    """A process group pinned to one core, with its output in a file."""

    def __init__(
        self, command: Sequence[str], *, core: int, log: Path, env: Mapping[str, str] | None = None,
        stdout: int | None = None,
    ) -> None:
        with log.open("ab") as out:
            self.popen = subprocess.Popen(
                ["taskset", "-c", str(core), *command],
                stdin=subprocess.PIPE, stdout=stdout or out, stderr=out,
                env={**os.environ, **(env or {})}, start_new_session=True,
            )
        self.command, self.log = list(command), log
        self.started = time.perf_counter()

    @property
    def tree(self) -> list[int]:
        """The process and all its descendants."""
        children: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            fields = _stat(stat)
            if fields:
                children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
        found = [self.popen.pid]
        for pid in found:
            found.extend(children.get(pid, []))
        return found

    def cpu(self) -> float:
        """Seconds of CPU, user and system, that the tree has used."""
        stats = (_stat(Path(f"/proc/{pid}/stat")) for pid in self.tree)
        return sum(TICK * (int(fields[11]) + int(fields[12])) for fields in stats if fields)

    def resident(self) -> int:
        """Resident bytes of the tree."""
        stats = (_stat(Path(f"/proc/{pid}/stat")) for pid in self.tree)
        return sum(PAGE * int(fields[21]) for fields in stats if fields)

    def last_words(self) -> str:
        """The end of what it wrote."""
        return self.log.read_text(errors="replace")[-500:].strip()

    def stop(self) -> None:
        """SIGTERM to the group, SIGKILL after five seconds."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.popen.pid, number)
                self.popen.wait(5)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self.popen.wait()


def _stat(path: Path) -> list[str] | None:
    """The fields after the command's name, so that [1] is the parent; None when the process is gone."""
    try:
        return path.read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
