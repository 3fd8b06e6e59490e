"""The examples of the serve guide, run as a reader would run them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def address() -> Iterator[str]:
    """A server in front of two simulated engines."""
    command = [sys.executable, "-m", "infera_cli", "serve", "--sim", "2", "--port", "0", "--no-access-log"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found is not None
            yield found[0]
        finally:
            server.terminate()
            server.communicate(timeout=30)


def test_both_turns_of_the_streamed_conversation_go_to_one_worker(address: str) -> None:
    """stream_chat.py prints two answers, each with the worker that gave it, and the two are the same."""
    command = [sys.executable, str(EXAMPLES / "stream_chat.py"), address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    first, second = done.stdout.splitlines()
    assert first.split(":")[0] == second.split(":")[0]
    assert first.split(":")[0] in {"sim0", "sim1"}
    assert len(first.split()) > 3


def test_the_replica_file_is_sound() -> None:
    """`infera config check` accepts the example file."""
    done = subprocess.run(
        [sys.executable, "-m", "infera_cli", "config", "check", str(EXAMPLES / "replicas.json")],
        capture_output=True, text=True, timeout=30, check=False,
    )
    assert done.returncode == 0, done.stderr
