"""The guide for clients, done exactly as written; only the port is the test's own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.conftest import serving

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "clients.md"
BLOCK = re.compile(r"^```(\w+)( \w+)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [(kind, note.strip(), text) for kind, note, text in BLOCK.findall(GUIDE.read_text(encoding="utf-8"))]
ADDRESS = "http://127.0.0.1:8000"


def blocks(kind: str) -> list[str]:
    """The texts of that kind that anybody can run."""
    return [text for found, note, text in BLOCKS if (found, note) == (kind, "")]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The server of the guide's first block, on a port of its own."""
    command = next(text for _, note, text in BLOCKS if note == "server")
    words = shlex.split(command)
    assert words[:2] == ["infera", "serve"]
    flags = words[2:]
    assert flags[:2] == ["--sim", "2"]
    with serving(*flags[2:]) as url:
        yield url


def run(command: list[str], text: str, address: str) -> str:
    """What a block prints."""
    programs = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "INFERA_SERVER": address}
    done = subprocess.run([*command, text.replace(ADDRESS, address)], env=environment, capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_python_blocks_run(address: str) -> None:
    """Both official clients say what the guide shows."""
    chat, messages = (run([sys.executable, "-c"], text, address) for text in blocks("python"))
    assert re.search(r"\d+ tokens$", chat.strip())
    first, *_, last = messages.strip().splitlines()
    assert re.fullmatch(r"\d+ tokens to read", first)
    assert last.startswith("measure {'text': ")


def test_the_shell_blocks_run(address: str) -> None:
    """curl in both shapes, prewarm, profile."""
    asked, warmed, profiled = (run(["bash", "-euc"], text, address) for text in blocks("sh"))
    assert '"object":"list"' in asked
    assert '"has_more":false' in asked
    assert "event: message_stop" in asked
    assert warmed.count("You are a helpful assistant.") == 3
    assert profiled.count("yes") == 2
