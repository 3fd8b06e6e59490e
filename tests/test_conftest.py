"""What holds for every test: skips nobody agreed to fail a complete run (rulings 32), logging ends with its test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ALLOWED, allowed_skips

SKIPPING = "import pytest\ndef test_it():\n    pytest.{}('not here')\n"


def run(folder: Path, source: str, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(source)
    (folder / "conftest.py").write_text((ALLOWED.parent / "conftest.py").read_text())
    (folder / "allowed_skips.txt").write_text("test_it.py::test_agreed  # a reason\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **env}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=folder, env=environment)


@pytest.mark.parametrize("how", ["skip", "xfail"])
def test_an_unnamed_skip_fails_the_run(tmp_path: Path, how: str) -> None:
    """A skipped test, or one that is expected to fail, ends a complete run with 1 and is named."""
    done = run(tmp_path, SKIPPING.format(how), FAIL_ON_SKIPS="1")
    assert done.returncode == 1
    assert "not in tests/allowed_skips.txt: test_it.py::test_it" in done.stdout


def test_a_skipped_module_fails_the_run(tmp_path: Path) -> None:
    """A module that skips itself while it is collected is seen too."""
    source = "import pytest\npytest.skip('no', allow_module_level=True)\n"
    done = run(tmp_path, source + "def test_it(): pass\n", FAIL_ON_SKIPS="1")
    assert done.returncode != 0
    assert "not in tests/allowed_skips.txt: test_it.py" in done.stdout


def test_a_named_skip_passes(tmp_path: Path) -> None:
    """A skip that the list names is let through."""
    done = run(tmp_path, SKIPPING.format("skip").replace("test_it", "test_agreed"), FAIL_ON_SKIPS="1")
    assert done.returncode == 0


def test_skips_are_free_elsewhere(tmp_path: Path) -> None:
    """Without FAIL_ON_SKIPS a skip fails nothing."""
    assert run(tmp_path, SKIPPING.format("skip"), FAIL_ON_SKIPS="0").returncode == 0


def test_the_list_of_allowed_skips_knows_remarks() -> None:
    """What follows a '#' is a remark, and empty lines name nothing."""
    assert allowed_skips("# head\n\ntests/a.py::test_b  # why\n") == {"tests/a.py::test_b"}


def test_logging_that_a_test_sets_up_ends_with_it(tmp_path: Path) -> None:
    """Two tests of one process: the second finds no handler and no level of the first."""
    found = run(tmp_path, '''
import logging, pytest
from infera_cli.telemetry import logs
@pytest.mark.parametrize("turn", [1, 2])
def test_it(turn):
    root = logging.getLogger()
    assert (root.level, [type(one) for one in root.handlers if type(one) is logging.StreamHandler]) == (30, [])
    logs.setup("debug")
''')
    assert found.returncode == 0, found.stdout
