"""A client that sends bytes as they are and reads answers with h11, chunk by chunk with the time of each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from time import monotonic
from typing import Any, Self
from urllib.parse import urlsplit

import h11

Headers = Mapping[str, str] | list[tuple[str, str]]
CHAT = "/v1/chat/completions"


class Response:
    """One answer. `chunks` are (time, bytes) as they came; `whole` says it ended as HTTP says."""

    def __init__(self, head: h11.Response, informational: list[h11.InformationalResponse]) -> None:
        self.status = head.status_code
        self.version = head.http_version.decode()
        self.reason = head.reason.decode("latin-1")
        self.pairs = [(k.decode("latin-1").lower(), v.decode("latin-1")) for k, v in head.headers]
        self.informational = informational
        self.chunks: list[tuple[float, bytes]] = []
        self.trailers: list[tuple[str, str]] = []
        self.whole = False

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.chunks)

    def json(self) -> Any:
        return json.loads(self.body)

    def all(self, name: str) -> list[str]:
        """Every value of a header, in order."""
        return [value for key, value in self.pairs if key == name.lower()]

    def get(self, name: str) -> str | None:
        """The only value of a header; None when absent, AssertionError when repeated."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} is repeated: {values}"
        return values[0] if values else None

    def events(self) -> list[str]:
        """The `data:` payloads of a complete SSE body."""
        return [block[6:] for block in self.body.decode().split("\n\n") if block.startswith("data: ")]


def request(method: str, target: str, body: bytes = b"", headers: Headers | None = None, *,
            host: str = "localhost", framing: bool = True) -> bytes:
    """A request's bytes; with `framing`, a Content-Length is added."""
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers or [])
    names = {name.lower() for name, _ in pairs}
    lines = [f"{method} {target} HTTP/1.1"]
    if "host" not in names:
        lines.append(f"Host: {host}")
    lines += [f"{name}: {value}" for name, value in pairs]
    if framing and "content-length" not in names and "transfer-encoding" not in names:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


class Client:
    """One connection to a server. `async with await Client.connect(url) as client:`"""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._h11 = h11.Connection(h11.CLIENT)
        self._response: Response | None = None

    @classmethod
    async def connect(cls, url: str, *, tls: ssl.SSLContext | None = None,
                      receive: int | None = None) -> Self:
        """Connect; `receive` sets the socket's receive buffer in bytes, for a client that reads slowly."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        family = socket.AF_INET6 if ":" in parts.hostname else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        if receive is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (parts.hostname, parts.port or 80))
        except BaseException:
            sock.close()
            raise
        name = parts.hostname if tls else None
        limit = 4096 if receive is not None else 2**18
        return cls(*await asyncio.open_connection(sock=sock, ssl=tls, server_hostname=name, limit=limit))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close both ways."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def reset(self) -> None:
        """Leave with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def send(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def post(self, target: str = CHAT, body: bytes | dict[str, Any] = b"{}",
                   headers: Headers | None = None) -> None:
        """Send a POST; a dict goes as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._expect("POST", target)
        await self.send(request("POST", target, data, headers))

    async def get(self, target: str, headers: Headers | None = None) -> Response:
        """GET, and the whole answer."""
        self._expect("GET", target)
        await self.send(request("GET", target, headers=headers, framing=False))
        return await self.response()

    def _expect(self, method: str, target: str) -> None:
        """Tell h11 what was asked, so that it knows how the answer is framed."""
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
        if self._h11.our_state is h11.IDLE:
            self._h11.send(h11.Request(method=method, target=target, headers=[("Host", "localhost")]))
            self._h11.send(h11.EndOfMessage())

    async def _event(self) -> Any:
        while True:
            event = self._h11.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._h11.receive_data(await self.reader.read(2**16))

    async def head(self, within: float = 10.0, method: str = "POST") -> Response:
        """Wait for the head of the next answer, informational ones collected on the way."""
        self._expect(method, "/")
        between: list[h11.InformationalResponse] = []
        async with asyncio.timeout(within):
            while True:
                event = await self._event()
                if isinstance(event, h11.Response):
                    self._response = Response(event, between)
                    return self._response
                assert isinstance(event, h11.InformationalResponse), f"no answer: {event}"
                between.append(event)

    async def body(self, within: float = 30.0) -> AsyncIterator[bytes]:
        """The pieces of the body as they come; ends early, `whole` False, where the answer breaks off."""
        response = self._response
        assert response is not None
        while True:
            try:
                async with asyncio.timeout(within):
                    event = await self._event()
            except (h11.RemoteProtocolError, ConnectionResetError):
                return
            if isinstance(event, h11.Data):
                response.chunks.append((monotonic(), bytes(event.data)))
                yield bytes(event.data)
            else:
                assert isinstance(event, h11.EndOfMessage), event
                response.whole = True
                response.trailers = [(k.decode(), v.decode("latin-1")) for k, v in event.headers]
                return

    async def response(self, within: float = 30.0, method: str = "POST") -> Response:
        """The next answer, whole or broken off."""
        await self.head(within, method)
        return await self.rest(within)

    async def rest(self, within: float = 30.0) -> Response:
        """What is left of the answer whose head was read."""
        async for _ in self.body(within):
            pass
        assert self._response is not None
        return self._response

    async def ended(self, within: float = 10.0) -> bytes:
        """Wait until the server closes; returns what came before that."""
        rest, _ = self._h11.trailing_data
        async with asyncio.timeout(within):
            try:
                return rest + await self.reader.read(-1)
            except ConnectionResetError:
                return rest


async def post(url: str, target: str = CHAT, body: bytes | dict[str, Any] = b"{}",
               headers: Headers | None = None, within: float = 30.0) -> Response:
    """One POST on a connection of its own."""
    async with await Client.connect(url) as client:
        await client.post(target, body, headers)
        return await client.response(within)


async def get(url: str, target: str, headers: Headers | None = None) -> Response:
    """One GET on a connection of its own."""
    async with await Client.connect(url) as client:
        return await client.get(target, headers)
