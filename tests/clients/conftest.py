"""A real server over simulated engines for each way of serving Messages."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

ADDRESS = re.compile(r"listening on (http://\S+)")
MODES = ("auto", "translate")


@contextmanager
def serving(*flags: str) -> Iterator[str]:
    """`infera serve --sim 2` with these flags; its address."""
    command = [sys.executable, "-m", "infera_cli", "serve", "--sim", "2", "--port", "0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            found = ADDRESS.search(server.stdout.readline())
            assert found is not None
            yield found[1]
        finally:
            server.terminate()
            server.stdout.read()


@pytest.fixture(scope="module", params=MODES)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server in that mode, which answers to names of Claude as well."""
    with serving("--anthropic", request.param, "--model-alias", "claude-*=sim") as address:
        yield address
