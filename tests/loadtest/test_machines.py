"""Load machines that come, stay, are lost, or never find each other: sentences, exit codes, no hanging."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from infera_cli.errors import ConfigError, InferaError, UsageError
from infera_cli.loadtest.bench import Bench
from infera_cli.loadtest.job import Job, Progress, Target
from infera_cli.loadtest.options import Options
from infera_cli.loadtest.processes import Cluster, join
from infera_cli.workload import goodput
from infera_cli.workload.arrivals import OpenLoop
from infera_cli.workload.requests import Shape
from tests.loadtest.runs import SHORT, Quiet, document
from tests.loadtest.test_cluster import free_port
from tests.support.timed_target import TimedTarget, stream

Started = subprocess.Popen[str]
Infera = Callable[..., Started]


@pytest.fixture
def infera(tmp_path: Path) -> Iterator[Infera]:
    """Start `infera ...` as a process of its own, in an empty folder."""
    started: list[Started] = []

    def start(*words: str) -> Started:
        code = "from infera_cli.cli import main; main()"
        started.append(subprocess.Popen([sys.executable, "-P", "-c", code, *words], text=True, cwd=tmp_path,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()    # it holds the pipes, too
            process.kill()
        process.communicate()


def child_of(process: Started, kind: str) -> int:
    """The process that does its work."""
    children = psutil.Process(process.pid).children()
    return next(child.pid for child in children if f"loadtest.cluster {kind}" in " ".join(child.cmdline()))


def until(process: Started, words: str) -> None:
    """Read what it says until `words` are in it."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    raise AssertionError(f"{words!r} was not said")


@pytest.mark.parametrize(("wanted", "cells"), [
    ({"sweep": ("concurrency", (2.0, 4.0)), "repeat": 2}, ["concurrency=2"] * 2 + ["concurrency=4"] * 2),
    ({"find_max": "concurrency", "slos": goodput.parse(["ttft:0.001"])}, ["concurrency=1"]),
])
def test_machines_stay_for_every_run(infera: Infera, wanted: dict[str, Any], cells: list[str]) -> None:
    """A sweep with repetitions, and a search: each run has both machines, and they end with the benchmark."""
    where = f"127.0.0.1:{free_port()}"
    workers = [infera("bench", "worker", "--master", where) for _ in range(2)]
    with TimedTarget(lambda _got: stream(0.005, 0.0, 1)) as target:
        found = document(target.url, master=where, expect_workers=2, count=8, **wanted)
    assert [worker.wait(timeout=20) for worker in workers] == [0, 0]
    assert [(run.cell, run.figures.counts.ok) for run in found.runs] == [(cell, 8) for cell in cells]


def test_a_machine_that_is_lost_leaves_a_report(infera: Infera) -> None:
    """The finished run is kept, the broken one is INVALID, exit 1, and no further one is begun."""
    where = f"127.0.0.1:{free_port()}"

    class Killer(Quiet):
        def goes(self, progress: list[Progress]) -> None:
            if len(self.plans) == 2 and progress[0].state == "running" and progress[0].sent > 3:
                self.plans.append(self.plans[-1])
                os.kill(child_of(workers[0], "worker"), signal.SIGKILL)

    with TimedTarget(lambda _got: stream(0.005, 0.0, 1)) as target:
        workers = [infera("bench", "worker", "--master", where) for _ in range(2)]
        found = document(target.url, watcher=Killer(), sweep=("rate", (10.0, 11.0, 12.0)), duration=4.0, master=where,
                         expect_workers=2)
        assert [worker.wait(timeout=20) for worker in workers] == [1, 0]
    assert [run.verdict.exit_code for run in found.runs] == [0, 1]
    broken = found.runs[1]
    assert broken.verdict.status == "INVALID"
    assert any("1 of 2 load machines were lost" in reason for reason in broken.verdict.reasons)
    assert broken.figures.counts.ok > 0


def test_a_benchmark_that_is_killed_is_told_by_its_machines(infera: Infera) -> None:
    """kill -9 of the benchmark: the machine says that it ended early, exit 1."""
    where = f"127.0.0.1:{free_port()}"
    with TimedTarget(lambda _got: stream(0.005, 0.0, 1)) as target:
        bench = infera("bench", "--base-url", target.url, "--rate", "20", "-d", "60", "--isl", "8",
                       "--master-bind", where)
        worker = infera("bench", "worker", "--master", where)
        until(worker, "joined the benchmark")
        bench.kill()
        _out, err = worker.communicate(timeout=20)
    assert (worker.returncode, err) == (1, f"error: the benchmark at {where} was ended before it was over\n")


def test_ctrl_c_at_a_machine_is_quiet_and_told_to_the_benchmark(infera: Infera, tmp_path: Path) -> None:
    """Exit 130 there without a traceback; here a partial report and exit 1."""
    where = f"127.0.0.1:{free_port()}"
    with TimedTarget(lambda got: stream(0.005, 0.0, 1)) as target:
        worker = infera("bench", "worker", "--master", where)
        until(worker, "waiting for a benchmark at")
        bench = infera("bench", "--base-url", target.url, "--rate", "20", "-d", "60", "--isl", "8", "--master-bind",
                       where, "--result-filename", "r.json")
        until(bench, "0 of 1 load machines have joined")
        until(worker, "joined the benchmark")
        while len(target.got) < 10:
            time.sleep(0.05)
        worker.send_signal(signal.SIGINT)
        _out, err = worker.communicate(timeout=20)
        assert (worker.returncode, err) == (130, "")
        out, err = bench.communicate(timeout=30)
    assert (bench.returncode, err) == (1, "")
    assert "1 of 1 load machines were lost in mid-run" in " ".join(out.split())
    assert json.loads((tmp_path / "r.json").read_text())["runs"][0]["verdict"]["status"] == "INVALID"


def test_who_waits_says_so_and_gives_up(tmp_path: Path) -> None:
    """A machine without a benchmark, a benchmark without machines: a word at once, and a sentence at the end."""
    where = f"127.0.0.1:{free_port()}"
    said: list[str] = []
    with pytest.raises(InferaError, match=re.escape(f"no benchmark was found at {where} within 1 s")):
        join(where, said.append, patience=1.0)
    assert said == [f"waiting for a benchmark at {where} (infera bench --master-bind)"]
    heard: list[Progress] = []
    job = Job(Target("http://127.0.0.1:9"), Shape("chat", "m"), OpenLoop(1.0, count=1), SHORT, 1)
    cluster = Cluster(where, 2, patience=1.0)
    with pytest.raises(ConfigError, match=r"0 of 2 load machines have joined at .* within 1 s"):
        cluster.run(job, tmp_path, heard.extend, lambda: None)
    cluster.close()
    assert heard[0].message == f"0 of 2 load machines have joined at {where}; waiting for the others"


@pytest.mark.parametrize("bind", ["5557", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:x"])
def test_an_address_to_listen_at_is_host_and_port(bind: str) -> None:
    """Anything else is refused before a process is started."""
    with TimedTarget(lambda _got: stream(0.0, 0.0, 1)) as target, pytest.raises(UsageError, match="--master-bind"):
        Bench(Options(target.url, dataset=SHORT, count=1, master=bind), Quiet())


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_an_address_where_nobody_can_listen_is_one_sentence(infera: Infera, host: str) -> None:
    """A taken port, or a host that is not ours: exit 1, no traceback."""
    with socket.socket() as taken, TimedTarget(lambda _got: stream(0.0, 0.0, 1)) as target:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"{host}:{taken.getsockname()[1]}"
        bench = infera("bench", "--base-url", target.url, "-n", "2", "--isl", "8", "--master-bind", where)
        out, err = bench.communicate(timeout=20)
    assert (bench.returncode, out) == (1, "")
    assert err.startswith(f"error: cannot listen at {where} (--master-bind): ")
    assert err.count("\n") == 1


def test_ctrl_c_at_the_benchmark_lets_its_machines_go(infera: Infera) -> None:
    """In mid-run: a partial report, exit 130; the machine ends with it."""
    where = f"127.0.0.1:{free_port()}"
    with TimedTarget(lambda _got: stream(0.005, 0.0, 1)) as target:
        worker = infera("bench", "worker", "--master", where)
        bench = infera("bench", "--base-url", target.url, "--rate", "20", "-d", "60", "--isl", "8", "--master-bind",
                       where)
        until(worker, "joined the benchmark")
        while len(target.got) < 10:
            time.sleep(0.05)
        bench.send_signal(signal.SIGINT)
        out, _err = bench.communicate(timeout=20)
        _said, err = worker.communicate(timeout=20)
    assert (bench.returncode, worker.returncode) == (130, 0)
    assert "PARTIAL" in out
    assert err == f"the benchmark at {where} is over\n"


def test_ctrl_c_while_machines_are_waited_for(infera: Infera) -> None:
    """Exit 130 soon, and not VALID."""
    with TimedTarget(lambda _got: stream(0.005, 0.0, 1)) as target:
        bench = infera("bench", "--base-url", target.url, "-n", "2", "--isl", "8", "--master-bind",
                       f"127.0.0.1:{free_port()}")
        until(bench, "0 of 1 load machines have joined")
        bench.send_signal(signal.SIGINT)
        out, err = bench.communicate(timeout=10)
    assert (bench.returncode, err) == (130, "")
    assert re.search(r"INVALID.*: not one request was completed", out)
