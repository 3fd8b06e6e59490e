"""Holds for every test: a skip that `allowed_skips.txt` does not name fails a run that must be complete.

Set FAIL_ON_SKIPS=1 for that, as .ci/run does (rulings 32).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("patient", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("patient")

ALLOWED = Path(__file__).with_name("allowed_skips.txt")


@pytest.fixture(autouse=True)
def logging_ends_with_its_test() -> Iterator[None]:
    """A command that runs inside a test sets logging up for its process, which is that of the next tests, too."""
    root = logging.getLogger()
    level, before = root.level, set(root.handlers)
    yield
    root.setLevel(level)
    for handler in set(root.handlers) - before:
        if type(handler) is logging.StreamHandler:  # those of pytest are kinds of their own
            root.removeHandler(handler)


def allowed_skips(text: str) -> set[str]:
    """The node ids that `text` names, one a line; what follows a '#' is a remark."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {line for line in lines if line}


class SkipGuard:
    """Notes skipped tests and modules (expected failures too); those not named fail the run."""

    def __init__(self, allowed: set[str]) -> None:
        self.allowed = allowed
        self.unexpected: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report.skipped, report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report.skipped, report.nodeid)

    def _note(self, skipped: bool, nodeid: str) -> None:
        if skipped and nodeid not in self.allowed:
            self.unexpected.append(nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.unexpected and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for nodeid in self.unexpected:
            terminalreporter.write_line(f"Skipped, but not in tests/allowed_skips.txt: {nodeid}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("FAIL_ON_SKIPS") == "1":
        config.pluginmanager.register(SkipGuard(allowed_skips(ALLOWED.read_text())), "skip-guard")
