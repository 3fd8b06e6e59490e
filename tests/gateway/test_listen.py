"""Where the server listens, and what it says about it (R188)."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path
from time import monotonic

import pytest

from tests.gateway.conftest import Serve
from tests.support import raw
from tests.support.server import COMMAND
from tests.support.stub import StubWorker

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_r188_a_taken_port_is_exit_1_at_once(tmp_path: Path) -> None:
    """The error names host and port, and no worker was probed before."""
    file = tmp_path / "replicas.json"
    async with StubWorker() as worker:
        file.write_text(f'{{"replicas": [{{"host": "127.0.0.1", "port": {worker.port}}}]}}')
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            since = monotonic()
            process = await asyncio.create_subprocess_exec(
                *COMMAND, "--replicas", str(file), "--host", "127.0.0.1", "--port", str(port),
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
            out, err = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 1
        assert monotonic() - since < 6
        assert f"127.0.0.1:{port}" in (out + err).decode()
        assert b"Traceback" not in out + err
        assert worker.connections == []


async def test_r188_port_0_prints_the_real_port(serve: Serve) -> None:
    """The address line carries the port that was taken, once."""
    setup = await serve(1, process=True)
    found = {port for line in [*setup.server.out, *setup.server.log]
             for port in re.findall(r"http://127\.0\.0\.1:(\d+)", line) if int(port) != setup.u1.port}
    assert len(found) == 1
    assert (await raw.get(f"http://127.0.0.1:{found.pop()}", "/livez")).status == 200


async def test_r188_ipv6_is_reachable_and_printed_with_brackets(serve: Serve) -> None:
    """--host ::1 listens there, and the printed URL can be used as it is."""
    setup = await serve(1, "--host", "::1", process=True)
    assert setup.server.url.startswith("http://[::1]:")
    assert (await raw.post(setup.url)).status == 200


async def test_r188_localhost_is_reachable(serve: Serve) -> None:
    """--host localhost listens on what it resolves to."""
    setup = await serve(1, "--host", "localhost", process=True)
    port = int(setup.server.url.rpartition(":")[2])
    reached = []
    for host in ("127.0.0.1", "[::1]"):
        try:
            reached.append((await raw.get(f"http://{host}:{port}", "/livez")).status)
        except OSError:
            continue
    assert 200 in reached
