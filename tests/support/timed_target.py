"""A target whose timing is known: each answer is a script of bytes and instants, each write is logged.

Runs in a thread of its own. Instants are seconds from the moment a request was complete; `freeze` holds
everything back, as a stalled server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Self

EARLY = 0.0015      # seconds that a timer is set too early, by a target that then looks again and again
RESET = b"\x00reset"    # instead of bytes: break the connection with RST
CLOSE = b"\x00close"    # instead of bytes: close it in mid-answer


@dataclass
class Got:
    """One request as it came, and when each write of its answer really left."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float
    number: int
    peer: int
    writes: list[float] = field(default_factory=list)

    def prompt(self) -> str:
        """All text of the prompt."""
        if "messages" in self.body:
            return " ".join(str(message["content"]) for message in self.body["messages"])
        return str(self.body.get("prompt", ""))


@dataclass
class Script:
    """(instant, bytes) in order; the answer ends properly after the last, unless it is RESET or CLOSE."""

    steps: list[tuple[float, bytes]]
    status: int = 200
    kind: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    raw: bool = False       # the steps are the whole answer, head and framing included; then the connection closes


class Dial(NamedTuple):
    """A TLS connection that was held back: its number as they came, and when it was accepted and ready."""

    number: int
    accepted: float
    ready: float


def event(value: Any, name: str = "") -> bytes:
    """One server-sent event."""
    data = value if isinstance(value, str) else json.dumps(value)
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def text(content: str, **more: Any) -> bytes:
    """A chat chunk with `content`."""
    return event({"choices": [{"index": 0, "delta": {"content": content}, **more}]})


def usage(completion: int, prompt: int = 10, **more: Any) -> bytes:
    """The usage-only chunk."""
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, **more}})


FINISH = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
DONE = event("[DONE]")


def stream(first: float, gap: float, tokens: int, *, prompt: int = 10) -> Script:
    """An ordinary chat answer: `tokens` chunks, the first at `first`, then every `gap` seconds."""
    steps = [(first + gap * n, text(f" w{n}")) for n in range(tokens)]
    end = first + gap * max(tokens - 1, 0)
    return Script([*steps, (end, FINISH + usage(tokens, prompt) + DONE)])


def _secure(tls: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*tls)
    return context


class TimedTarget:
    """`with TimedTarget(reply) as target:`; `reply` makes the script of each POST. With `tls`, connection number n
    waits `hold(n)` seconds for its handshake; `dials` says by peer what came of it. A `punctual` one is awake when an
    instant comes, where a timer may be a millisecond late; that costs a good part of a processor."""

    def __init__(
        self, reply: Callable[[Got], Script], models: Iterable[str] = ("m",), tls: tuple[Path, Path] | None = None,
        hold: Callable[[int], float] | None = None, *, punctual: bool = False,
    ) -> None:
        self._reply, self._models = reply, list(models)
        self._hold, self._context = hold, None if tls is None else _secure(tls)
        self.dials: dict[int, Dial] = {}
        self._dialled = 0
        self._early = EARLY if punctual else 0.0
        self.got: list[Got] = []
        self.url = ""
        self.workers: list[dict[str, str]] = []
        self._frozen = (0.0, 0.0)
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._over = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it: open connections break off, new ones are refused."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()

    def serves(self, *models: str) -> None:
        """List these models from now on."""
        self._models = list(models)

    def freeze(self, start: float, end: float) -> None:
        """Answer nothing between two `perf_counter` instants."""
        self._frozen = start, end

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self) -> None:
        at_once = None if self._hold else self._context
        server = await asyncio.start_server(self._client, "127.0.0.1", 0, backlog=1024, ssl=at_once)
        self.url = f"{'https' if self._context else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._over.wait()
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._secured(writer)
            while await self._request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _secured(self, writer: asyncio.StreamWriter) -> None:
        """The handshake, when it is this target that decides how long it takes."""
        if self._hold is None or self._context is None:
            return
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # or its hello is taken for a request
        accepted, number, self._dialled = perf_counter(), self._dialled, self._dialled + 1
        await self._until(accepted + self._hold(number))
        await writer.start_tls(self._context)
        self.dials[int(writer.get_extra_info("peername")[1])] = Dial(number, accepted, perf_counter())

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _version = head[0].split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if method == "GET":
            return await self._get(path, writer)
        peer = int(writer.get_extra_info("peername")[1])
        got = Got(path, headers, json.loads(body or b"{}"), perf_counter(), len(self.got), peer)
        self.got.append(got)
        return await self._play(self._reply(got), got, writer)

    async def _get(self, path: str, writer: asyncio.StreamWriter) -> bool:
        answers: dict[str, Any] = {
            "/v1/models": {"object": "list", "data": [{"id": model} for model in self._models]},
        }
        if self.workers:
            answers["/v1/workers"] = {"workers": self.workers}
        body = json.dumps(answers.get(path, {})).encode()
        status = "200 OK" if path in answers else "404 Not Found"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        return True

    async def _play(self, script: Script, got: Got, writer: asyncio.StreamWriter) -> bool:
        extra = "".join(f"{name}: {value}\r\n" for name, value in script.headers.items())
        head = (
            f"HTTP/1.1 {script.status} X\r\nContent-Type: {script.kind}\r\n{extra}"
            "Transfer-Encoding: chunked\r\n\r\n"
        ).encode()
        for at, data in script.steps:
            await self._until(got.at + at)
            if data in (RESET, CLOSE):
                if data is RESET:
                    sock: socket.socket = writer.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort() if data is RESET else writer.close()
                return False
            writer.write(data if script.raw else head + b"%x\r\n%b\r\n" % (len(data), data))
            got.writes.append(perf_counter())
            head = b""
        if script.raw:
            return False
        writer.write(head + b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _until(self, instant: float) -> None:
        while True:
            now = perf_counter()
            start, end = self._frozen
            due = end if start <= now < end else instant
            if due <= now:
                return
            await asyncio.sleep(max(0.0, due - now - self._early))
