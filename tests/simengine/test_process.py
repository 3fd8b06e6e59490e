"""Starting and stopping the simulated engine."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.simengine.test_http import HELLO, events

COMMAND = [sys.executable, "-m", "infera_cli.simengine"]


async def spawn(*flags: str, **more: int) -> asyncio.subprocess.Process:
    """An engine as a child process."""
    return await asyncio.create_subprocess_exec(
        *COMMAND, *flags, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, pass_fds=list(more.values()))


async def address(child: asyncio.subprocess.Process) -> str:
    """Its base URL, from the first line it prints."""
    assert child.stdout is not None
    return (await child.stdout.readline()).decode().strip().removeprefix("listening on ")


async def ended(child: asyncio.subprocess.Process) -> int:
    """Its exit code; its pipes are read to their end."""
    async with asyncio.timeout(10):
        await child.communicate()
    assert child.returncode is not None
    return child.returncode


async def test_connections_are_refused_while_it_loads() -> None:
    """The port is taken at once but listens only when the model is loaded (engines §1.1)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    child = await spawn("--port", str(port), "--load-seconds", "0.8")
    ready = asyncio.create_task(address(child))
    refused = 0
    async with httpx.AsyncClient(verify=False) as client:
        while not ready.done():
            try:
                await client.get(f"http://127.0.0.1:{port}/health")
            except httpx.ConnectError:
                refused += 1
            await asyncio.sleep(0.02)
        assert (await client.get(f"{ready.result()}/health")).status_code == 200
    assert refused > 5
    child.terminate()
    assert await ended(child) == 0


async def test_it_announces_its_port_in_every_way_asked_for(tmp_path: Path) -> None:
    """Standard output, a file and a file descriptor all get the port once it is ready."""
    read, write = os.pipe()
    ready = tmp_path / "ready"
    child = await spawn("--ready-file", str(ready), "--announce-fd", str(write), fd=write)
    os.close(write)
    url = await address(child)
    port = url.rpartition(":")[2]
    with os.fdopen(read) as told:
        assert await asyncio.to_thread(told.readline) == f"{port}\n"
        child.send_signal(signal.SIGINT)
        assert await ended(child) == 0
    assert ready.read_text() == f"{port}\n"


async def test_it_ends_with_its_parent() -> None:
    """The end of standard input is the end of the engine."""
    child = await spawn("--exit-with-parent")
    assert (await address(child)).startswith("http://127.0.0.1:")
    assert child.stdin is not None
    child.stdin.close()
    assert await ended(child) == 0


async def test_sigterm_ends_open_streams_with_abort() -> None:
    """Requests in flight end under 200 with finish_reason "abort" (engines §1.13)."""
    child = await spawn("--itl-ms", "20")
    url = await address(child)
    body = {"messages": HELLO, "max_tokens": 2000, "ignore_eos": True, "stream": True}
    text = ""
    async with (
        httpx.AsyncClient(verify=False) as client,
        client.stream("POST", f"{url}/v1/chat/completions", json=body) as answer,
    ):
        async for piece in answer.aiter_text():
            if not text:
                child.terminate()
            text += piece
    last, done = events(text)[-2:]
    assert (last["choices"][0]["finish_reason"], done) == ("abort", "[DONE]")
    assert await ended(child) == 0


async def test_a_taken_port_is_one_sentence() -> None:
    """The second engine on a port ends with 1 and says why."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        child = await spawn("--port", str(port))
        out, err = await child.communicate()
    assert (child.returncode, out) == (1, b"")
    assert err.decode() == f"cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize("flags", [["--blocks", "0"], ["--time-scale", "0"], ["--nonsense"], ["--port", "x"]])
def test_wrong_flags_exit_2(flags: list[str]) -> None:
    """A command line that makes no sense says so and exits with 2."""
    done = subprocess.run([*COMMAND, *flags], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 2
    assert "error:" in done.stderr
