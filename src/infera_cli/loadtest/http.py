"""One streamed HTTP exchange under gevent, with the instants that matter.

geventhttpclient parses and pools; reading is ours, since its own readers wait for full blocks
(bench-and-cli §B3): one `recv`, one instant, then parse. Nothing here raises for what a server does; a
failure is the exchange's outcome.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import gevent.socket
from geventhttpclient.connectionpool import ConnectionPool, SSLConnectionPool
from geventhttpclient.response import HTTPParseError, HTTPResponse

from infera_cli.loadtest.job import Target
from infera_cli.workload.answer import Answer
from infera_cli.workload.sample import INCOMPLETE

READ = 1 << 16
KEPT_ERROR = 2000

AT_ONCE = 0.05
"""Seconds within which a kept connection is closed that the server had closed by then, or was closing: the news takes a
round trip at most, also through a tunnel. Who takes longer may have worked on the request, and dropped it."""


class Stalled(Exception):
    """Thrown into a request that took too long; `kind` says at what."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class RunOver(Exception):
    """Thrown into a request that is still open when the run ends."""


class Exchange:
    """What happened to one request; instants are `perf_counter` seconds."""

    __slots__ = (
        "connected", "end", "error", "head", "last_data", "outcome", "resent", "sent", "status", "timing", "worker",
    )

    def __init__(self) -> None:
        self.sent = self.end = self.last_data = perf_counter()
        self.connected: float | None = None
        self.head: float | None = None
        self.resent = 0
        self.status = 0
        self.outcome = ""
        self.error = ""
        self.worker = ""
        self.timing = ""

    def fail(self, outcome: str, error: object = "") -> None:
        """The exchange failed in this way, unless it had failed before."""
        self.outcome = self.outcome or outcome
        self.error = self.error or str(error)[:300]

    def again(self) -> None:
        """It failed by no fault of anybody's and is sent once more; `sent` stays, the user has waited since then."""
        self.resent += 1
        self.outcome = self.error = ""


class _Response(HTTPResponse):
    """Parses one response; body bytes wait in `parts` until the loop takes them."""

    def __init__(self) -> None:
        super().__init__(method="POST")
        self.parts: list[bytes] = []

    def _on_body(self, buf: bytearray) -> None:
        self.parts.append(bytes(buf))

    @property
    def final(self) -> bool:
        """Headers of the real answer are complete, not those of an interim one."""
        return bool(self.headers_complete and self.get_code() >= 200)

    @property
    def whole(self) -> bool:
        """The message is complete."""
        return bool(self.message_complete and self.get_code() >= 200)

    @property
    def until_close(self) -> bool:
        """The body has no length of its own: the close of the connection ends it."""
        return self.final and "content-length" not in self and "transfer-encoding" not in self

    def header(self, name: str) -> str:
        found: Any = self.get(name)
        return found if isinstance(found, str) else ""


class Connections:
    """Keep-alive connections to one address."""

    def __init__(self, target: Target, connect_timeout: float, size: int) -> None:
        self.fresh: set[int] = set()
        parts = urlsplit(target.url)
        self.prefix = parts.path.rstrip("/")
        self.host = parts.netloc.rpartition("@")[2]
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        name = parts.hostname or ""
        options: dict[str, Any] = {
            "size": size, "connection_timeout": connect_timeout or None, "network_timeout": None,
        }
        if secure:
            trust = {"ca_certs": target.ca} if target.ca else {}
            options |= {"insecure": target.insecure, "ssl_options": trust}
            if target.insecure:
                options["ssl_context_factory"] = _trusting
        kind = SSLConnectionPool if secure else ConnectionPool
        self._pool = kind(name, port, name, port, **options)
        self._pool.after_connect = self._connected  # type: ignore[method-assign]  # its hook, without a subclass twice

    def _connected(self, sock: Any) -> None:
        sock.setsockopt(gevent.socket.IPPROTO_TCP, gevent.socket.TCP_NODELAY, 1)
        self.fresh.add(id(sock))

    def take(self) -> tuple[Any, bool]:
        """(socket, whether it was used before)."""
        sock = self._pool.get_socket()
        reused = id(sock) not in self.fresh
        self.fresh.discard(id(sock))
        return sock, reused

    def give_back(self, sock: Any, *, usable: bool) -> None:
        """Return a socket, or close it."""
        if usable:
            self._pool.return_socket(sock)
        else:
            self._pool.release_socket(sock)

    def close(self) -> None:
        """Close all idle connections."""
        self._pool.close()


def _trusting(cafile: str | None = None) -> ssl.SSLContext:
    """A context that verifies nothing, for --insecure."""
    del cafile
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Client:
    """Sends requests to one target on one path."""

    def __init__(self, target: Target, path: str, *, connect_timeout: float, size: int) -> None:
        self._connections = Connections(target, connect_timeout, size)
        fields = {
            "Host": self._connections.host,
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",       # a compressing proxy holds events back
            "User-Agent": "infera-bench",
        }
        given = {name.lower() for name in target.headers}
        fields = {name: value for name, value in fields.items() if name.lower() not in given} | target.headers
        first = f"POST {self._connections.prefix}{path} HTTP/1.1"
        self._head = "\r\n".join([first, *(f"{k}: {v}" for k, v in fields.items())]).encode("latin-1")

    def close(self) -> None:
        """Close idle connections."""
        self._connections.close()

    def send(
        self, exchange: Exchange, body: bytes, session: str | None, answer: Answer, *, stream: bool
    ) -> None:
        """Send `body`, read the answer into `answer` and the circumstances into `exchange`."""
        extra = f"\r\nX-Session-Id: {session}" if session else ""
        message = self._head + f"{extra}\r\nContent-Length: {len(body)}\r\n\r\n".encode("latin-1") + body
        exchange.sent = exchange.last_data = perf_counter()
        try:
            self._attempts(exchange, message, answer, stream=stream)
        except Stalled as stalled:
            exchange.fail(f"timeout_{stalled.kind}")
        except RunOver:
            exchange.outcome = exchange.outcome or INCOMPLETE       # refused already, the rest was awaited
        except HTTPParseError as error:
            exchange.fail("malformed", error)
        except OSError as error:
            exchange.fail("reset", error)
        exchange.end = perf_counter()

    def _attempts(self, exchange: Exchange, message: bytes, answer: Answer, *, stream: bool) -> None:
        """A kept connection that turns out closed at once is nobody's fault: again, on the next, and counted.

        It ends with a new connection, which is never excused.
        """
        while True:
            sock, reused = self._connect(exchange)
            if sock is None:
                return
            begin = perf_counter()
            response = _Response()
            usable = False
            try:
                sock.sendall(message)
                usable = self._read(exchange, sock, response, answer, stream=stream)
            except (ConnectionError, ssl.SSLEOFError) as error:
                exchange.fail("reset", error)
            finally:
                self._connections.give_back(sock, usable=usable)
            if response.message_begun or not reused or perf_counter() - begin > AT_ONCE:
                return
            exchange.again()

    def _connect(self, exchange: Exchange) -> tuple[Any, bool]:
        try:
            sock, reused = self._connections.take()
        except TimeoutError as error:
            exchange.fail("timeout_connect", error)
            return None, False
        except OSError as error:
            exchange.fail("tls" if isinstance(error, ssl.SSLError) else "connect", error)
            return None, False
        exchange.connected = perf_counter()
        return sock, reused

    def _read(
        self, exchange: Exchange, sock: Any, response: _Response, answer: Answer, *, stream: bool
    ) -> bool:
        """Read one response; whether the connection can be used again."""
        take: Callable[[float], None] | None = None
        while not response.whole:
            data = sock.recv(READ)
            now = perf_counter()
            exchange.last_data = now
            if not data:
                self._closed(exchange, response)
                break
            response.feed(data)
            if take is None:
                if not response.final:
                    continue
                take = self._begin(exchange, response, answer, now, stream=stream)
            if response.parts:
                take(now)
        if exchange.outcome in ("", "truncated") and take is not None:
            answer.close(exchange.last_data)
        return bool(response.whole and not response.should_close())

    def _begin(
        self, exchange: Exchange, response: _Response, answer: Answer, now: float, *, stream: bool
    ) -> Callable[[float], None]:
        """Headers are complete: note what they say, and return what is to be done with the body."""
        exchange.head = now
        exchange.status = response.get_code()
        exchange.worker = response.header("x-infera-worker")
        exchange.timing = response.header("server-timing")
        kind = response.header("content-type")
        if exchange.status >= 300:
            exchange.outcome = f"http_{exchange.status}"
        elif (coding := response.header("content-encoding").strip().lower()) not in ("", "identity"):
            exchange.fail("encoded", f"the answer is {coding}, though identity was asked for (Accept-Encoding)")
        elif stream and "event-stream" not in kind.lower():
            exchange.fail("not_streamed", f"asked for a stream, got {kind or 'no content type'}")
        parts = response.parts
        between = [": "] if exchange.error else []

        def feed(at: float) -> None:
            data = b"".join(parts)
            parts.clear()
            answer.feed(at, data)

        def drop(_at: float) -> None:
            parts.clear()

        def keep(_at: float) -> None:
            room = KEPT_ERROR - len(exchange.error)
            with contextlib.suppress(IndexError):
                text = b"".join(parts)[:room].decode("utf-8", "replace")
                exchange.error += (between.pop() if between and text else "") + text
            parts.clear()

        if exchange.outcome == "encoded":
            return drop
        return keep if exchange.outcome else feed

    @staticmethod
    def _closed(exchange: Exchange, response: _Response) -> None:
        if response.until_close:
            return
        exchange.fail("truncated" if response.final else "closed", "the connection was closed")
