"""A real coding agent that speaks Messages, against engines that speak chat: it runs a tool and tells of it.

The engine is scripted; the agent is the npm package, installed once into the cache folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import serving
from tests.clients.test_guide import ADDRESS, BLOCKS
from tests.protocol.messages.said import call, chunk, text, usage
from tests.support.local import LocalServer
from tests.support.replies import sse
from tests.support.stub import Reply, Seen, StubWorker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PACKAGE = "@anthropic-ai/claude-code@2"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "infera" / "coding-agent"
COMMAND = "echo river-$((40+2))"


@pytest.fixture(scope="module")
def agent() -> Path:
    """The agent's program."""
    program = CACHE / "node_modules" / ".bin" / "claude"
    if not program.exists():
        npm = shutil.which("npm")
        assert npm, "this test needs npm (on Debian: apt install npm)"
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([npm, "install", "--no-audit", "--no-fund", PACKAGE], cwd=CACHE, check=True, timeout=300)
    return program


def engine(seen: Seen) -> Reply:
    """Ask for one shell command, then tell what came back."""
    body = json.loads(seen.body)
    results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    if results:
        return sse([text(f"The shell said {results[-1].strip()}."), chunk(finish="stop"), usage(9, 9)])
    if not body.get("tools"):
        return sse([text("A title"), chunk(finish="stop"), usage(9, 2)])
    arguments = json.dumps({"command": COMMAND, "description": "Say where the river is"})
    first = chunk({"content": "Let me look.", "tool_calls": [call(0, arguments[:9], id="c1", name="Bash")]})
    rest = chunk({"tool_calls": [call(0, arguments[9:])]})
    return sse([first, rest, chunk(finish="tool_calls"), usage(9, 9)])


async def test_an_agent_runs_a_tool_through_the_router(agent: Path, tmp_path: Path) -> None:
    """The call reaches the agent, its result reaches the engine, and the engine's last words reach the person."""
    async with StubWorker(models=("served",)) as worker:
        worker.spoken.clear()
        worker.script = engine
        async with LocalServer([worker], tmp_path, "--model-alias", "claude-*=served") as server:
            said = await _run(agent, server.url, tmp_path)
        asked = [json.loads(seen.body) for seen in worker.calls]
    assert "The shell said river-42." in said["result"]
    assert said["is_error"] is False
    results = [message for body in asked for message in body["messages"] if message["role"] == "tool"]
    assert results[-1]["tool_call_id"] == "c1"
    assert "river-42" in results[-1]["content"]
    assert all("x-anthropic-billing-header" not in json.dumps(body["messages"][0]) for body in asked)
    assert {body["model"] for body in asked} == {"served"}


async def _run(agent: Path, url: str, folder: Path) -> Any:
    """What the agent prints, as JSON; it gets a home of its own, and nothing but the router to talk to."""
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        str(agent), "-p", "Where is the river?", "--model", "claude-sonnet-4-5", "--output-format", "json",
        "--allowedTools", "Bash", env=environment, cwd=folder, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, (out + err).decode()[-2000:]
    return json.loads(out)


def test_the_agents_block_of_the_guide_runs(agent: Path, tmp_path: Path) -> None:
    """Done as written, against simulated engines: the agent prints their answer."""
    flags = next(shlex.split(text)[4:] for _, note, text in BLOCKS if note == "server")
    block = next(text for _, note, text in BLOCKS if note == "agent")
    with serving(*flags) as url:
        environment = {
            "PATH": f"{agent.parent}:{os.environ['PATH']}", "HOME": str(tmp_path),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1",
        }  # fmt: skip
        said = subprocess.run(
            ["bash", "-euc", block.replace(ADDRESS, url)], env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr
    assert len(said.stdout.split()) > 3
