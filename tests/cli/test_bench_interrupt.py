"""Ctrl-C in `infera bench`, whenever and however often: exit 130, a report or a sentence, never VALID for nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infera_cli.cli import bench
from infera_cli.cli.app import run as command
from infera_cli.cli.bench import exit_code, patient
from infera_cli.workload.result import Document
from tests.support.timed_target import Got, Script, TimedTarget, stream

Started = subprocess.Popen[str]


def started(folder: Path, url: str, *words: str) -> Started:
    """`infera bench` as a process of its own, two load processes, writing r.json."""
    code = "from infera_cli.cli import main; main()"
    words = ("bench", "--base-url", url, "--isl", "8", "--processes", "2", "--result-filename", "r.json", *words)
    return subprocess.Popen([sys.executable, "-P", "-c", code, *words], text=True, cwd=folder,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Twenty:
    """Short streams; `enough` is set when twenty requests are under way."""

    def __init__(self) -> None:
        self.enough = threading.Event()

    def __call__(self, got: Got) -> Script:
        if got.number == 20:
            self.enough.set()
        return stream(0.01, 0.01, 3)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_r170_an_interrupted_run_reports_what_was_done(ending: signal.Signals) -> None:
    """Ctrl-C half way: the report of what was done, marked partial, and exit 130."""
    with TimedTarget(under_way := Twenty()) as target:
        words = ["bench", "--base-url", target.url, "--rate", "30", "-d", "60", "--isl", "8"]
        child = subprocess.Popen([sys.executable, "-c", "from infera_cli.cli import main; main()", *words],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert under_way.enough.wait(30)
        child.send_signal(ending)
        out, err = child.communicate(timeout=30)
    assert child.returncode == 130, err
    assert "PARTIAL: the run was interrupted" in out
    assert re.search(r"requests \d+ sent, \d+ ok, 0 failed", out)
    assert "Traceback" not in err


def test_ctrl_c_while_the_load_gets_ready_is_no_valid_run(tmp_path: Path) -> None:
    """In the warm-up: nothing was measured, so nothing is VALID, and no process is said to have died."""
    begun = threading.Event()

    def reply(_got: Got) -> Script:
        begun.set()
        return stream(20.0, 0.0, 1)

    with TimedTarget(reply) as target:
        child = started(tmp_path, target.url, "--rate", "10", "-d", "60", "--num-warmups", "4")
        assert begun.wait(30)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    assert (child.returncode, err) == (130, "")
    assert "PARTIAL" in out
    assert re.search(r"INVALID.*: not one request was completed", out)
    assert "died" not in out


def test_several_presses_in_a_moment_are_one(tmp_path: Path) -> None:
    """Four times Ctrl-C within half a second: the report is shown and written as after one."""
    with TimedTarget(under_way := Twenty()) as target:
        child = started(tmp_path, target.url, "--rate", "30", "-d", "60")
        assert under_way.enough.wait(30)
        for _ in range(4):
            child.send_signal(signal.SIGINT)
            time.sleep(0.1)
        out, err = child.communicate(timeout=30)
    assert (child.returncode, err) == (130, "")
    assert "PARTIAL" in out
    assert (tmp_path / "r.json").exists()


@pytest.fixture
def handlers() -> Iterator[None]:
    """Signal handlers as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_a_later_press_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a moment nothing, after it a second interruption; then the process ends undisturbed."""
    monkeypatch.setattr(bench, "MOMENT", 0.05)
    with patient() as pressed:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        assert len(pressed) == 2
    os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.usefixtures("handlers")
def test_a_report_that_is_not_written_is_told(times: int, monkeypatch: pytest.MonkeyPatch,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    """Interrupted before there is one, or again while it is made: one sentence each."""
    monkeypatch.setattr(bench, "MOMENT", -1.0)

    def run(_self: object) -> Document:
        for _ in range(times - 1):
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("unreachable")

    monkeypatch.setattr("infera_cli.loadtest.bench.Bench.run", run)
    with TimedTarget(lambda _got: stream(0.0, 0.0, 1)) as target:
        assert command(["bench", "--base-url", target.url, "-n", "1"]) == 130
    said = ("interrupted before there was anything to report", "interrupted again: the report was dropped")[times - 1]
    assert capsys.readouterr().err == f"{said}\n"


@pytest.mark.usefixtures("handlers")
def test_an_interruption_while_options_are_read_is_told(monkeypatch: pytest.MonkeyPatch,
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything was looked at: exit 130, and the same sentence."""

    def read(_asked: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("infera_cli.cli.bench_asked.options_from", read)
    assert command(["bench", "--base-url", "http://x", "-n", "1"]) == 130
    assert capsys.readouterr().err == "interrupted before there was anything to report\n"


def test_a_fault_after_finished_runs_is_exit_1() -> None:
    """What was done is reported, and the command fails all the same; so does a search that lost a machine."""
    assert exit_code(Document((), "0", {"failed": "why"})) == 1
    assert exit_code(Document((), "0", {"find_max": {"passed": 0, "broken": True}})) == 1
