"""A real simulated engine per test module."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

Start = Callable[..., str]


def post(url: str, **request: Any) -> httpx.Response:
    """One POST on a connection of its own. (httpx.post loads all certificates of the system first.)"""
    with httpx.Client(verify=False, trust_env=False) as client:
        return client.post(url, **request)


def get(url: str, **request: Any) -> httpx.Response:
    """One GET on a connection of its own."""
    with httpx.Client(verify=False, trust_env=False) as client:
        return client.get(url, **request)


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Starts engines with extra flags and returns their base URL once they take requests; stops them at the
    end."""
    children: list[subprocess.Popen[str]] = []

    def run(*flags: str) -> str:
        child = subprocess.Popen(
            [sys.executable, "-m", "infera_cli.simengine", "--exit-with-parent", *flags],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        children.append(child)
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:"), line
        return line.strip().removeprefix("listening on ")

    yield run
    for child in children:
        child.terminate()
    for child in children:
        child.communicate(timeout=10)
        assert child.returncode == 0


@pytest.fixture(scope="module")
def url(start: Start) -> str:
    """One engine with default names, quick enough for tests."""
    return start("--time-scale", "4", "--served-model-name", "sim", "alias", "--model", "/models/sim")
