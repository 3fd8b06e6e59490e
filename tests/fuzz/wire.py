"""The data plane without sockets: its own protocols between memory transports, so thousands of cases take seconds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from typing import Any, cast

import h11
from uvicorn.config import Config
from uvicorn.server import ServerState

from infera_cli.events import Bus
from infera_cli.fleet.registry import Registry
from infera_cli.gateway.access import Access
from infera_cli.gateway.connection import bound_to
from infera_cli.gateway.dispatch import Dispatcher
from infera_cli.gateway.gate import Gate
from infera_cli.gateway.options import RelayOptions
from infera_cli.gateway.upstream.http import Client, Connection, Pool
from infera_cli.routing.catalogue import policy
from infera_cli.routing.health import BreakerRules
from infera_cli.routing.sessions import Pins
from infera_cli.routing.types import WorkerSpec

Pair = tuple[bytes, bytes]


class FakeSocket:
    """As much of a socket as the data plane touches."""

    family = socket.AF_INET

    def __init__(self) -> None:
        self.lingers = True

    def getpeername(self) -> tuple[str, int]:
        return ("127.0.0.1", 1)

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 2)

    def setsockopt(self, _level: int, option: int, _value: bytes) -> None:
        if option == socket.SO_LINGER:
            self.lingers = False


class Pipe(asyncio.Transport):
    """A transport that keeps what is written; `feed` and `end` are what the other side does."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.socket = FakeSocket()
        self.protocol = protocol
        self.written = bytearray()
        self.closed = False
        self.aborted = False
        self.sending_over = False
        self.reading = True
        self._waiting: list[bytes] = []

    # ── the other side ───────────────────────────────────────────────────────────────────────────────
    def feed(self, data: bytes) -> None:
        """Bytes arrive, unless reading is paused: then they wait."""
        if self.closed:
            return
        if self.reading:
            self.protocol.data_received(data)
        else:
            self._waiting.append(data)

    def end(self, error: Exception | None = None) -> None:
        """The other side closes, or resets with `error`."""
        if not self.closed:
            if error is None:
                self.protocol.eof_received()
            self._close(error)

    # ── what the protocol does ───────────────────────────────────────────────────────────────────────
    def write(self, data: Any) -> None:
        if not self.closed and not self.sending_over:
            self.written += data

    def writelines(self, pieces: Iterable[Any]) -> None:
        for piece in pieces:
            self.write(piece)

    def _close(self, error: Exception | None) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)

    def close(self) -> None:
        self._close(None)

    def abort(self) -> None:
        self.aborted = True
        self._close(None)

    def write_eof(self) -> None:
        self.sending_over = True

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self.closed

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        while self._waiting and self.reading and not self.closed:
            self.protocol.data_received(self._waiting.pop(0))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = cast("asyncio.Protocol", protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"socket": self.socket, "peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    @property
    def over(self) -> bool:
        """Nothing more will be written."""
        return self.closed or self.sending_over


class SlowPipe(Pipe):
    """The other side takes nothing before the loop turns: each write is more than may wait."""

    slow = False

    def write(self, data: Any) -> None:
        super().write(data)
        if not self.slow:
            self.slow = True
            self.protocol.pause_writing()
            asyncio.get_running_loop().call_soon(self._drained)

    def _drained(self) -> None:
        self.slow = False
        if not self.closed:
            self.protocol.resume_writing()


class MemoryDialer:
    """Connects to nothing; `made` are the transports of the connections it gave out."""

    made: list[Pipe]

    async def __call__(self, pool: Pool) -> Connection:
        connection = Connection(pool)
        pipe = Pipe(connection)
        connection.connection_made(pipe)
        self.made.append(pipe)
        return connection


async def nothing_else(_scope: Any, _receive: Any, send: Any) -> None:
    """The app behind the data plane: 404."""
    await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


class World:
    """A data plane with one worker that never goes out of rotation. Make it inside a running loop."""

    def __init__(self, options: RelayOptions | None = None) -> None:
        self.bus = Bus()
        self.fleet = Registry(self.bus, pins=Pins(600, cap=100), breaker=BreakerRules(threshold=0))
        self.fleet.add(WorkerSpec(id="w", host="worker.test", port=80))
        self.dialer = MemoryDialer()
        self.dialer.made = []
        self.upstream = Client(self.dialer, idle_limit=4, clock=lambda: 0.0)
        dispatcher = Dispatcher(self.fleet, policy("session"), slack=8, clock=lambda: 0.0)
        self.gate = Gate(dispatcher, self.upstream, self.bus, Access(), options or RelayOptions(), clock=lambda: 0.0)
        self._class = bound_to(self.gate)
        self._config = Config(
            nothing_else, http=self._class, ws="none", lifespan="off", log_config=None, access_log=False)
        self._config.load()

    def client(self, kind: type[Pipe] = Pipe) -> Pipe:
        """A client that has just connected."""
        protocol = self._class(self._config, ServerState(), {})
        pipe = kind(protocol)
        protocol.connection_made(pipe)
        return pipe

    @property
    def workers(self) -> list[Pipe]:
        """The worker connections made so far."""
        return self.dialer.made

    async def reset(self) -> None:
        """End every worker connection and forget it."""
        for pipe in self.workers:
            pipe.close()
        await settle()
        self.workers.clear()
        assert not self.gate.inside, "a request was left inside"


async def settle() -> None:
    """Let everything happen that is due."""
    for _ in range(8):
        await asyncio.sleep(0)


async def feed(pipe: Pipe, data: bytes, cuts: Sequence[int]) -> None:
    """Feed `data` in pieces that end at `cuts`, with a turn of the loop after each."""
    start = 0
    for cut in (*cuts, len(data)):
        if cut > start:
            pipe.feed(data[start:cut])
            await asyncio.sleep(0)
            start = cut
    await settle()


class Parsed:
    """What h11 makes of one message: `wrong` where it refuses it, `whole` where it is complete."""

    def __init__(self) -> None:
        self.first: h11.Request | h11.Response | None = None
        self.body = b""
        self.whole = False
        self.wrong = False
        self.interim = 0
        self.rest = b""

    @property
    def pairs(self) -> list[Pair]:
        return [] if self.first is None else [(bytes(k).lower(), bytes(v)) for k, v in self.first.headers]

    @property
    def target(self) -> bytes:
        assert isinstance(self.first, h11.Request)
        return bytes(self.first.target)

    @property
    def status(self) -> int:
        assert isinstance(self.first, h11.Response)
        return self.first.status_code


def parse(connection: h11.Connection, data: bytes, *, ended: bool) -> Parsed:
    """Read one message with h11; `ended`: the connection closes after `data`."""
    out = Parsed()
    try:
        connection.receive_data(data)
        if ended:
            connection.receive_data(b"")
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request | h11.Response):
                out.first = event
            elif isinstance(event, h11.InformationalResponse):
                out.interim += 1
            elif isinstance(event, h11.Data):
                out.body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                out.whole = True
                break
            else:
                break
    except h11.RemoteProtocolError:
        out.wrong = True
    out.rest = connection.trailing_data[0]
    return out


def as_request(data: bytes) -> Parsed:
    """`data` as a server reads it."""
    return parse(h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 24), data, ended=False)


def as_response(data: bytes, *, ended: bool) -> Parsed:
    """`data` as a client reads it that sent a POST."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 24)
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "x")]))
    connection.send(h11.EndOfMessage())
    return parse(connection, data, ended=ended)
