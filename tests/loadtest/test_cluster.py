"""Several machines, through locust's own master and workers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from infera_cli.errors import UsageError
from infera_cli.launch.ports import free_ports
from infera_cli.loadtest.job import Progress, together
from infera_cli.loadtest.processes import join as join_here
from tests.loadtest.runs import run
from tests.support.timed_target import TimedTarget, stream


def free_port() -> int:
    """A port that no connection out and no server of another test is given meanwhile."""
    return free_ports(1, host="127.0.0.1")


def join(where: str) -> subprocess.Popen[bytes]:
    code = "from infera_cli.loadtest.processes import join; import sys; sys.exit(join(sys.argv[1]))"
    return subprocess.Popen([sys.executable, "-c", code, where])


def test_machines_join_through_locust() -> None:
    """A master and two workers share one plan: every request is sent once, every sample comes back."""
    where = f"127.0.0.1:{free_port()}"
    workers = [join(where) for _ in range(2)]
    with TimedTarget(lambda _got: stream(0.01, 0.01, 3)) as target:
        found = run(target.url, count=30, rate=30.0, master=where, expect_workers=2)
        assert [worker.wait(timeout=30) for worker in workers] == [0, 0]
    assert (found.figures.counts.sent, found.figures.counts.ok) == (30, 30)
    assert found.figures.counts.output_tokens == 90
    assert len({got.prompt() for got in target.got}) == 30


def test_several_processes_speak_as_one() -> None:
    """Counts add up, the busiest CPU and worst lag count, and the slowest decides the state."""
    found = together([
        Progress("done", sent=3, done=2, failed=1, ttft=0.1, lag=0.01, cpu_max=0.2, cpu_mean=0.1),
        Progress("running", sent=4, done=4, open=2, ttft=0.3, lag=0.05, cpu_max=0.9, cpu_mean=0.3),
    ])
    assert (found.state, found.sent, found.done, found.failed, found.open) == ("running", 7, 6, 1, 2)
    assert (found.ttft, found.lag, found.cpu_max, found.cpu_mean) == (0.2, 0.05, 0.9, 0.2)
    assert together([]).state == "starting"


@pytest.mark.parametrize("address", ["", "host", "host:", ":5557", "host:x"])
def test_an_address_to_join_is_host_and_port(address: str) -> None:
    """Anything but HOST:PORT is refused."""
    with pytest.raises(UsageError, match="HOST:PORT"):
        join_here(address)
