"""One small request to a worker on a connection of its own: probes and model lists (rulings 12).

The relay's pool is never touched, so busy streams cannot starve a probe (replica-router §1.7).
"""

from __future__ import annotations

import asyncio

from infera_cli.gateway.upstream.dial import Dialer
from infera_cli.gateway.upstream.http import Client, Connection, Pool
from infera_cli.gateway.upstream.receiver import Receiver
from infera_cli.protocol.headers import AnswerHead
from infera_cli.routing.types import WorkerSpec

MAX_REPLY = 4 << 20


class Reply:
    """Status and body of a complete answer."""

    __slots__ = ("body", "status")

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body


class _Collector(Receiver):
    """Receives one answer and makes a future of it."""

    def __init__(self) -> None:
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._status = 200
        self._body = bytearray()

    def on_head(self, _connection: Connection, status: int, _head: AnswerHead) -> None:
        self._status = status

    def on_data(self, pieces: list[bytes], done: bool) -> None:
        for piece in pieces:
            self._body += piece
        if self.reply.done():
            return
        if len(self._body) > MAX_REPLY:
            self.reply.set_exception(ConnectionError(f"the answer is over {MAX_REPLY} bytes"))
        elif done:
            self.reply.set_result(Reply(self._status, bytes(self._body)))

    def on_whole(self, _head: AnswerHead, body: bytes) -> None:
        self.on_data([body], True)

    def on_broken(self, _connection: Connection, detail: str) -> None:
        if not self.reply.done():
            self.reply.set_exception(ConnectionError(detail))


class Fetcher:
    """Small requests to workers, with each worker's own key."""

    def __init__(self, client: Client, dialer: Dialer) -> None:
        self._client = client
        self._dialer = dialer

    async def __call__(
        self, spec: WorkerSpec, path: str, *, timeout: float, body: bytes | None = None,  # noqa: ASYNC109 - the prober's
    ) -> Reply:  # fmt: skip
        """GET `path` below the worker's base URL, or POST it the JSON `body`.

        Raises OSError, TimeoutError; redirects are not followed.
        """
        async with asyncio.timeout(timeout):
            connection = await self._dialer.connect(Pool(spec, self._client))
            collector = _Collector()
            try:
                connection.send(collector, _request(spec, path, body), body or b"")
                return await collector.reply
            finally:
                connection.abandon()


def _request(spec: WorkerSpec, path: str, body: bytes | None) -> bytes:
    key = f"authorization: Bearer {spec.api_key}\r\n" if spec.api_key else ""
    method = "GET" if body is None else "POST"
    if body is not None:
        key += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return (
        f"{method} {spec.path_prefix}{path} HTTP/1.1\r\nhost: {spec.authority}\r\naccept: */*\r\n"
        f"user-agent: infera\r\n{key}connection: close\r\n\r\n"
    ).encode()
