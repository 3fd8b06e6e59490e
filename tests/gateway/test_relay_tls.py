"""TLS towards clients and workers: how connections end, and whose certificates are trusted."""

from __future__ import annotations

import asyncio
import shutil
import signal
import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.gateway.conftest import Serve
from tests.support import raw
from tests.support.certificates import Certificates
from tests.support.local import LocalServer
from tests.support.replies import chunked, event, word
from tests.support.server import ServerProcess
from tests.support.stub import Connection, Step, StubWorker

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def serving(certificates: Certificates) -> Sequence[str]:
    """The flags for serving TLS."""
    return "--ssl-certfile", certificates.cert, "--ssl-keyfile", certificates.key


@pytest.fixture
def trusting(certificates: Certificates) -> ssl.SSLContext:
    """A client that trusts the server."""
    return ssl.create_default_context(cafile=certificates.ca)


class TlsWorker(StubWorker):
    """A worker that speaks https."""

    def __init__(self, certificates: Certificates) -> None:
        super().__init__()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificates.cert, certificates.key)

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), self.host, self.port, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]


@pytest_asyncio.fixture(loop_scope="session")
async def worker(certificates: Certificates) -> Any:
    async with TlsWorker(certificates) as worker:
        yield worker


# ── the stop ─────────────────────────────────────────────────────────────────────────────────────────
async def test_an_idle_tls_client_does_not_delay_the_end(
    serve: Serve, serving: Sequence[str], trusting: ssl.SSLContext
) -> None:
    """A client that keeps its connection, and never says goodbye, is not waited for; nothing is logged as an error."""
    setup = await serve(1, *serving, process=True)
    client = await raw.Client.connect(setup.url, tls=trusting)
    await client.post()
    assert (await client.response()).status == 200
    assert isinstance(client.writer.transport, asyncio.Transport)
    client.writer.transport.pause_reading()
    assert await setup.server.stop(within=5) == 0
    client.writer.transport.abort()
    assert not [line for line in setup.server.log if line.startswith("ERROR")]


async def test_an_idle_https_worker_does_not_spoil_the_end(
    worker: TlsWorker, certificates: Certificates, tmp_path: Path
) -> None:
    """A pooled connection to an https worker ends with the server: exit code 0."""
    entries = {"u1": {"scheme": "https", "ca_file": certificates.ca}}
    async with ServerProcess([worker], tmp_path, entries=entries) as server:
        assert (await raw.post(server.url)).status == 200
        assert await server.stop() == 0
    assert not [line for line in server.log if "fault in infera" in line]


async def read_on(client: raw.Client, told: bytearray) -> None:
    """Gather what comes. Raises what ends it: IncompleteReadError for a clean end."""
    async with asyncio.timeout(5):
        while True:
            told += await client.reader.readexactly(1)


# ── broken answers ───────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_a_broken_answer_is_no_clean_end_over_tls(
    serve: Serve, serving: Sequence[str], trusting: ssl.SSLContext, version: bytes
) -> None:
    """The client gets the error event, and no goodbye after it: HTTP/1.0 would take that for the end of the body."""
    setup = await serve(1, *serving)
    setup.u1.always([*chunked([event(word("a"))], end=False), 0.05, Step.RESET])
    client = await raw.Client.connect(setup.url, tls=trusting)
    await client.send(raw.request("POST", raw.CHAT, b'{"stream":true}').replace(b"HTTP/1.1", b"HTTP/" + version, 1))
    told = bytearray()
    with pytest.raises(ConnectionResetError):
        await read_on(client, told)
    client.writer.transport.abort()
    assert b"broke off in the middle" in told
    assert b"\r\n0\r\n" not in told


@pytest.mark.parametrize("twice", [False, True])
async def test_a_stream_that_the_servers_end_breaks_is_no_clean_end_over_tls(
    serve: Serve, serving: Sequence[str], trusting: ssl.SSLContext, twice: bool
) -> None:
    """By the limit of the stop, and by a second signal, which waits for nothing."""
    setup = await serve(1, *serving, "--shutdown-timeout", "1", process=True)
    setup.u1.always([*chunked([event(word("a"))], end=False), Step.HANG])
    client = await raw.Client.connect(setup.url, tls=trusting)
    await client.send(raw.request("POST", raw.CHAT, b'{"stream":true}').replace(b"HTTP/1.1", b"HTTP/1.0", 1))
    told = bytearray(await client.reader.readuntil(b"data: "))
    setup.server.signal(signal.SIGTERM)
    if twice:
        await asyncio.sleep(0.3)
        setup.server.signal(signal.SIGTERM)
    with pytest.raises(ConnectionResetError):
        await read_on(client, told)
    client.writer.transport.abort()


async def test_a_client_that_leaves_amid_a_break_leaves_no_fault(
    serve: Serve, serving: Sequence[str], trusting: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    """Its connection is gone when it is looked at again."""
    setup = await serve(1, *serving)
    setup.u1.always([*chunked([event(word("a"))], end=False), 0.05, Step.RESET])
    client = await raw.Client.connect(setup.url, tls=trusting)
    await client.send(raw.request("POST", raw.CHAT, b'{"stream":true}'))
    await client.reader.readuntil(b"broke off")
    client.writer.transport.abort()
    await asyncio.sleep(0.3)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


# ── whom to trust ────────────────────────────────────────────────────────────────────────────────────
async def test_a_replaced_ca_file_counts_for_the_next_connection(
    worker: TlsWorker, certificates: Certificates, tmp_path: Path
) -> None:
    """The file is read again when it changed; one that cannot be used leaves the certificates of before in use."""
    other = tmp_path / "other"
    other.mkdir()
    trusted = tmp_path / "trusted.pem"
    right = Path(certificates.ca).read_text()  # noqa: ASYNC240 - a test's
    shutil.copy(Certificates(other).ca, trusted)
    entries = {"u1": {"scheme": "https", "ca_file": str(trusted)}}
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(LocalServer([worker], tmp_path, entries=entries))
        assert (await raw.post(server.url)).status in {502, 503}
        for content in (right, "half a certifica"):
            trusted.write_text(content)
            await server.reload()
            async with asyncio.timeout(20):
                while (await raw.post(server.url)).status != 200:  # noqa: ASYNC110 - the next probe has no event for us
                    await asyncio.sleep(0.05)
            for connection in worker.connections:
                connection.transport.abort()
