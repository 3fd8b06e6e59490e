"""Commands run in this process; what they printed comes back as plain text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from infera_cli.cli.app import run
from infera_cli.cli.console import console
from tests.client.stub import Stub, serving


class Result(NamedTuple):
    """Exit code, standard output, standard error."""

    code: int
    out: str
    err: str


Infera = Callable[..., Result]


@pytest.fixture
def infera(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Infera:
    """Run one command line, in an empty folder, with nothing of ours in the environment, 100 columns wide."""
    for name in ("INFERA_DEBUG", "INFERA_SERVER", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(console, "debug", False)
    monkeypatch.chdir(tmp_path)

    def call(*argv: str) -> Result:
        capsys.readouterr()
        code = run(argv)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving() as running:
        yield running
