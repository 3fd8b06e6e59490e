"""Where the server listens, and what it says about it (R188)."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.gateway.conftest import Serve
from tests.support import raw
from tests.support.server import COMMAND
from tests.support.stub import StubWorker

pytestmark = pytest.mark.asyncio(loop_scope="session")


def of_children() -> float:
    """Processor seconds of the processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def test_r188_a_taken_port_is_exit_1_at_once(tmp_path: Path) -> None:
    """Two seconds of work at most (four on a busy machine); the error names host and port, no worker was probed."""
    file = tmp_path / "replicas.json"
    async with StubWorker() as worker:
        file.write_text(f'{{"replicas": [{{"host": "127.0.0.1", "port": {worker.port}}}]}}')
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            since, worked = monotonic(), of_children()
            process = await asyncio.create_subprocess_exec(
                *COMMAND, "--replicas", str(file), "--host", "127.0.0.1", "--port", str(port),
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
            out, err = await asyncio.wait_for(process.communicate(), 20)
        took = monotonic() - since
        assert process.returncode == 1
        assert of_children() - worked < 2
        assert took < 4
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


async def test_r188_localhost_is_reachable_on_every_family(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where localhost is ::1 and 127.0.0.1, --host localhost answers on both at one port, and its URL can be used."""
    resolve = socket.getaddrinfo

    def both(host: Any, *args: Any, **more: Any) -> Any:
        return [one for name in (("::1", "127.0.0.1") if host == "localhost" else (host,))
                for one in resolve(name, *args, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    setup = await serve(1, "--host", "localhost")
    port = int(setup.server.url.removeprefix("http://localhost:"))
    for host in ("127.0.0.1", "[::1]"):
        assert (await raw.get(f"http://{host}:{port}", "/livez")).status == 200


async def test_r188_localhost_is_listened_to_as_this_machine_resolves_it(serve: Serve) -> None:
    """A process with --host localhost answers on each address that localhost has here."""
    setup = await serve(1, "--host", "localhost", process=True)
    port = int(setup.server.url.removeprefix("http://localhost:"))
    found = {address[0] for *_, address in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)}
    for host in found:
        shown = f"[{host}]" if ":" in str(host) else host
        assert (await raw.get(f"http://{shown}:{port}", "/livez")).status == 200
