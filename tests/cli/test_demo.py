"""`infera demo`: what a newcomer sees, with and without a terminal."""

from __future__ import annotations

import asyncio
import io
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import rich.console

from infera_cli import wiring
from infera_cli.cli.console import Console
from infera_cli.cli.demo_live import Live
from infera_cli.cli.demo_view import Plain, View, program
from infera_cli.client import demo as traffic
from infera_cli.client.demo import Answered, Asked, Progress, summarize
from infera_cli.config.settings import ServeSettings
from infera_cli.errors import AddressInUse
from tests.cli.conftest import Infera

STEPS: list[Progress] = [
    Asked(1, 1),
    Answered(conversation=1, turn=1, worker="sim0", prompt=100, cached=0, completion=9, ttft=0.03, latency=0.4),
    Asked(1, 2),
    Answered(conversation=1, turn=2, worker="sim0", prompt=200, cached=96, completion=9, ttft=0.02, latency=1.25),
    Asked(2, 1),
    Answered(conversation=2, turn=1, worker="sim1", error="HTTP 503: nobody"),
]


class FakeServer:
    """Stands where the router would be; ends at Ctrl-C."""

    taken: frozenset[int] = frozenset()

    def __init__(self, settings: ServeSettings) -> None:
        if settings.port in self.taken:
            raise AddressInUse(f"port {settings.port} is in use")
        self.settings = settings
        self.url = f"http://{settings.host}:{settings.port or 12345}"
        self.stopping = False
        specs = [SimpleNamespace(id=f"sim{n}", url=f"http://127.0.0.1:900{n}") for n in range(settings.sim)]
        self.registry = SimpleNamespace(members=lambda: [SimpleNamespace(spec=spec) for spec in specs])

    async def serve(self, say: Callable[[str], None], ready: Callable[[], None]) -> None:
        say("a banner that the demo does not repeat")
        over = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, over.set)
        ready()
        await over.wait()

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> list[Progress]:
    """The steps that the demo will see, in place of a router and its traffic."""
    steps: list[Progress] = []

    async def converse(base_url: str, *, conversations: int, turns: int) -> AsyncIterator[Progress]:
        assert (base_url[:17], conversations, turns) == ("http://127.0.0.1:", 6, 4)
        for step in steps:
            yield step

    monkeypatch.setattr(traffic, "converse", converse)
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/infera")
    monkeypatch.setattr(wiring, "Server", FakeServer)
    return steps


PLAIN = """\
infera demo at http://127.0.0.1:8000
starting 2 simulated engines
sim0 is ready at http://127.0.0.1:9000
sim1 is ready at http://127.0.0.1:9001
conversation 1, turn 1: sim0 answered; prompt 100 tokens, 0 of them cached; first token after 30 ms, all after 400 ms
conversation 1, turn 2: sim0 answered; prompt 200 tokens, 96 of them cached; first token after 20 ms, all after 1.25 s

WORKER  TURNS  SHARE  CONVERSATIONS
sim0        2  100%               1

2 turns answered, 0 failed
prefix reuse: 32% of the prompt tokens were in their worker's cache
first token: p50 25 ms, p90 29 ms
whole answer: p50 825 ms, p90 1.17 s

in front of your own engines: infera serve --worker URL
"""


def test_without_a_terminal_each_change_is_a_line(infera: Infera, stage: list[Progress]) -> None:
    """The address first, engines, turns, who served what, reuse and latencies; exit status 0."""
    stage.extend(STEPS[:4])
    assert infera("demo", "--once", "--sim", "2") == (0, PLAIN, "")


def test_failed_turns_are_told_and_counted(infera: Infera, stage: list[Progress]) -> None:
    """With `--once` they make exit status 1, so that a script can rely on it."""
    stage.extend(STEPS)
    code, out, _ = infera("demo", "--once", "--sim", "2")
    assert code == 1
    assert "conversation 2, turn 1: failed: HTTP 503: nobody\n" in out
    assert "2 turns answered, 1 failed\n" in out


def test_a_taken_port_is_no_obstacle(infera: Infera, stage: list[Progress], monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer whose 8000 is taken gets a free port, unless a port was asked for."""
    monkeypatch.setattr(FakeServer, "taken", frozenset({8000}))
    stage.extend(STEPS[:2])
    assert infera("demo", "--once").out.startswith("infera demo at http://127.0.0.1:12345\n")
    assert infera("demo", "--once", "--port", "8000") == (1, "", "error: port 8000 is in use\n")


def test_what_to_try_next_is_complete(capsys: pytest.CaptureFixture[str]) -> None:
    """The lines to copy hold the real address, and the Python ones are Python."""
    Plain(Console({})).invite("http://127.0.0.1:1", stays=True)
    text = capsys.readouterr().out
    assert "curl -N http://127.0.0.1:1/v1/chat/completions" in text
    python = re.search(r"pip install openai\):\n((?:  .*\n)+)", text)
    assert python is not None
    compile("\n".join(line[2:] for line in python[1].splitlines()), "invitation", "exec")
    assert text.rstrip().endswith("Ctrl-C stops the router and the engines")


def test_the_commands_to_try_run_where_infera_is_not_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make demo` starts `.venv/bin/infera`: that path is printed, whole; elsewhere the interpreter and the module."""
    there = tmp_path / "a clone" / "infera"
    there.parent.mkdir()
    there.write_text("#!/bin/sh\necho ran\n")
    there.chmod(0o755)
    monkeypatch.chdir(there.parent)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(sys, "argv", ["./infera", "demo"])
    Plain(Console({})).invite("http://127.0.0.1:1", stays=True)
    command = re.search(r"  (\S.*) workers list --server", capsys.readouterr().out)
    assert command is not None
    assert shlex.split(command[1]) == [str(there)]
    assert subprocess.run(["sh", "-c", command[1]], capture_output=True, text=True, check=True).stdout == "ran\n"
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "__main__.py")])
    assert shlex.split(program()) == [sys.executable, "-m", "infera_cli"]
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/infera")
    assert program() == "infera"


def drawn(view: Live) -> str:
    out = io.StringIO()
    rich.console.Console(file=out, width=100, force_terminal=False, color_system=None).print(view._picture())
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


LIVE = """\
worker  turns served
sim0    ██ 2
sim1     0

conversation  turn  worker  prompt  cached  first token  answer
1             2     sim0    200     48%     20 ms        1.25 s
2             1     sim1                                 failed: HTTP 503: nobody

conversations on their way …"""


def test_on_a_terminal_a_table_lives() -> None:
    """A bar per worker and a row per conversation, redrawn with each step."""
    view = Live(Console({}))
    view.ready([("sim0", "u"), ("sim1", "u")])
    for step in STEPS[:1]:
        assert isinstance(step, Asked)
        view.asked(step)
    assert "1             1 …" in drawn(view)
    for step in STEPS[1:]:
        (view.asked if isinstance(step, Asked) else view.answered)(step)
    assert drawn(view) == LIVE


def test_the_live_view_leaves_the_terminal_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    """Every stage in order, the figures at the end, and closing twice is fine."""
    view: View = Live(Console({}))
    view.start("http://127.0.0.1:1", 2)
    view.ready([("sim0", "u")])
    answers = [step for step in STEPS[:4] if isinstance(step, Answered)]
    for answer in answers:
        view.answered(answer)
    view.end(summarize(answers))
    view.invite("http://127.0.0.1:1", stays=False)
    view.close()
    view.close()
    out = capsys.readouterr().out
    assert out.startswith("infera demo at http://127.0.0.1:1\n")
    assert "prefix reuse: 32% of the prompt tokens" in out
    assert "in front of your own engines" in out


def test_the_real_demo_serves_and_ends() -> None:
    """Two engines as processes, the router, traffic through it, and exit status 0 with nothing left over."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = [sys.executable, "-m", "infera_cli", "demo", "--once", "--sim", "2", "--conversations", "2", "--turns", "2"]
    done = subprocess.run(
        [*argv, "--port", str(port)], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "NO_COLOR": "1"})
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"infera demo at http://127.0.0.1:{port}"
    assert sum(line.startswith("conversation ") for line in lines) == 4
    assert "4 turns answered, 0 failed" in lines
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
