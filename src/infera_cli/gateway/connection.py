"""The client's connection: uvicorn's protocol, with relayed routes taken out before they become ASGI requests.

uvicorn keeps sockets, TLS, keep-alive, pipelining and the graceful stop; health, admin, docs and metrics go to the
FastAPI app on the same port. A relayed POST becomes a `Relay` at *headers complete* (design.md §3).
"""

from __future__ import annotations

import asyncio
import logging
from time import time as wall
from typing import Any, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from infera_cli.errors import HeadersTooLarge, InferaError, RequestError
from infera_cli.gateway import marks
from infera_cli.gateway.answer import Answer
from infera_cli.gateway.breaking import reset_once_written
from infera_cli.gateway.channel import PIPELINE, Channel
from infera_cli.gateway.gate import Gate, takes
from infera_cli.gateway.identity import ids
from infera_cli.gateway.overdue import SHUTDOWN, longest_arrival, too_late
from infera_cli.gateway.record import unread
from infera_cli.gateway.relay import Relay
from infera_cli.gateway.relayed import is_relayed, origin_form
from infera_cli.protocol.headers import RequestHead
from infera_cli.protocol.upgrade import without_offer

_LINGER_SECONDS = 5.0
_UNREAD = RequestHead([])
_log = logging.getLogger("infera.gateway")


class ClientConnection(HttpToolsProtocol):
    """One client connection. `gate` is set by `bound_to`."""

    gate: Gate

    # Slots over what uvicorn keeps in a dict: these are read for every request.
    __slots__ = (
        "app_since", "channel", "client", "declined", "discarding_since", "fed", "flow", "head", "head_bytes",
        "head_since", "headers", "in_head", "length", "messages", "parser", "pipeline", "read_bytes", "server_state",
        "transport", "url",
    )  # fmt: skip

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:  # fmt: skip
        self.channel = Channel(self.gate, self)
        super().__init__(config, server_state, app_state, _loop)
        self.head = RequestHead([])
        self.length: bytes | None = None
        self.in_head = False
        self.declined = b""  # the head that offered another protocol, less the offer
        self.messages = 0    # begun in this read
        self.read_bytes = 0
        self.head_since: float | None = None
        self.head_bytes = 0  # of what is neither a body nor done yet: a head, a trailer, a chunk's size line
        self.fed = False     # a piece of a body was read since the last look
        self.discarding_since: float | None = None
        self.app_since: float | None = None  # when the head of a request for the app was read whose body is to come

    @property
    def cycle(self) -> Any:
        """The last request whose head was read, as uvicorn asks for it."""
        return self.channel.cycle

    @cycle.setter
    def cycle(self, cycle: Any) -> None:
        self.channel.cycle = cycle

    # ── asyncio ──────────────────────────────────────────────────────────────────────────────────────
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self.channel.opened(self.transport, self.client[0] if self.client else "")
        self.transport.set_protocol(cast("asyncio.Protocol", self.channel))
        self.gate.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gate.connections.discard(self)
        for cycle in self._cycles():
            if isinstance(cycle, Relay):
                cycle.client_gone()
            else:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        self.channel.serving = None
        if isinstance(self.cycle, Relay):
            self.cycle = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.channel.data_received(data)

    def feed(self, data: bytes) -> None:
        """What one read brought, where it was no repeat."""
        if self.discarding_since is None:
            if self.channel.between:
                self.messages = 0
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        self.read_bytes = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._decline(data[offer.args[0] :])
        except httptools.HttpParserError as error:
            if isinstance(error, httptools.HttpParserCallbackError) and not _is_bad_target(error):
                _log.error("a request could not be handled", exc_info=error)
            self._refuse_connection(RequestError("The request is not valid HTTP/1.1."))
        else:
            if self.in_head:
                self._wait_for_head()
            elif not self.channel.between:
                self._wait_for_body()
            elif self.channel.between and self.messages == 1 and self.length is not None:
                self._remember(data)

    def _decline(self, rest: bytes) -> None:
        """No protocol is changed here: read the request again as if it had not offered to, with its body."""
        head, self.declined = self.declined, b""
        if head and self.messages <= PIPELINE:
            self.parser = httptools.HttpRequestParser(self)
            self._parse(head + rest)
        elif self.discarding_since is None:
            self._refuse_connection(RequestError("Only HTTP/1.1 and HTTP/1.0 are spoken here."))

    def pause_writing(self) -> None:
        super().pause_writing()
        if isinstance(self.channel.serving, Relay):
            self.channel.serving.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        if isinstance(self.channel.serving, Relay):
            self.channel.serving.resume()

    # ── httptools ────────────────────────────────────────────────────────────────────────────────────
    def on_message_begin(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.length = None
        self.in_head = True
        self.channel.between = False
        self.messages += 1
        self.channel.idle_since = 0.0

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:  # a trailer: nobody here understands any, so none may pass for a header
            return
        name = name.lower()
        value = value.strip(b" \t")
        if name == b"content-length":
            self.length = value
        else:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.in_head = False
        self.head_bytes, self.head_since = 0, None
        if self.discarding_since is not None:
            return
        if self._head_is_too_large():
            self._refuse_connection(self._headers_too_large())
            return
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if self.parser.should_upgrade() and method != b"CONNECT":
            self.declined = without_offer(method, self.url, version, self.headers, self.length)
            return
        target = self.url
        if not target.startswith(b"/"):
            target = origin_form(target)
        if self.headers != self.head.headers:
            self.head = RequestHead(self.headers)
        fault = self.head.fault(version)
        path = target.partition(b"?")[0]
        if fault is not None:
            self._refuse_connection(RequestError(fault), self.head)
        elif takes(path) and method == b"POST":
            self._take_relay(target, path, version)
        else:
            self._to_app(path)

    def on_body(self, body: bytes) -> None:
        if self.discarding_since is not None:
            return
        self.fed = True
        if isinstance(self.cycle, Relay):
            self.cycle.take_body(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self.channel.between = True
        if self.discarding_since is not None or self.declined:
            return
        if isinstance(self.cycle, Relay):
            self.cycle.take_end()
        else:
            self.app_since = None
            super().on_message_complete()

    # ── whose turn it is ─────────────────────────────────────────────────────────────────────────────
    def _take_relay(self, target: bytes, path: bytes, version: str) -> None:
        http11 = version == "1.1"
        keep_alive = self.parser.should_keep_alive()
        before = self.cycle
        length = int(self.length) if self.length is not None else 0
        kind = self.gate.kinds.get(path, Relay)
        self.cycle = relay = kind(self.gate, self.channel, target, self.head, length, http11, keep_alive)
        self.channel.serve_after(before, relay)

    def _remember(self, data: bytes) -> None:
        """`data` was one whole request, with its length in the head."""
        if isinstance(self.cycle, Relay):
            self.channel.remember(data, self.cycle)

    def _to_app(self, sent: bytes) -> None:
        """Hand the request to uvicorn as if it had parsed the head itself. `sent` is the path as it came."""
        url, headers = self.url, list(self.headers)
        self.app_since = self.gate.clock()
        if self.length is not None:
            headers.append((b"content-length", self.length))
        super().on_message_begin()
        self.url = url
        for name, value in headers:
            super().on_header(name, value)
        super().on_headers_complete()
        if is_relayed(self.scope["path"]):  # it may only decode to a relayed path: then it is not called by that name
            self.scope["path"] = sent.decode("latin-1")

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self.channel.serving = cycle
        if isinstance(cycle, Relay):
            cycle.begin()
        else:
            super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self.channel.idle_since = self.gate.clock()

    def last_answer_left(self, relay: Relay) -> None:
        """The answer of `relay` was the last one here."""
        if relay.answer.broken:
            self._discard()
            reset_once_written(self.transport)
        elif relay.complete:
            self.transport.close()
        else:
            self._linger()

    # ── endings ──────────────────────────────────────────────────────────────────────────────────────
    def sweep(self, now: float) -> None:
        """Close the connection if it is idle, half-said or lingering for too long."""
        times = self.gate.options.timeouts
        if self.app_since is not None and now - self.app_since > longest_arrival(times) and self._waits_for_body():
            self._refuse_connection(too_late("body", complete=False))
        elif (
            (self.channel.idle_since and now - self.channel.idle_since > times.keep_alive)
            or (self.head_since is not None and now - self.head_since > times.head)
            or (self.discarding_since is not None and now - self.discarding_since > _LINGER_SECONDS)
        ):
            self.transport.close()

    @property
    def broke(self) -> bool:
        """Whether the last answer broke, so that the connection must not end as after a whole one."""
        return isinstance(self.cycle, Relay) and self.cycle.answer.broken

    def shutdown(self) -> None:
        """See uvicorn."""
        if not self.broke:
            super().shutdown()

    @property
    def is_busy(self) -> bool:
        """Somebody waits for an answer here, or for the rest of one."""
        return self._is_answering() or self.transport.get_write_buffer_size() > 0

    def cut_off(self) -> bool:
        """The server ends: tell who waits for the app, where that can still be done. Whether somebody did wait."""
        if not self._is_answering():
            return False
        self._refuse_connection(too_late(SHUTDOWN, complete=True))
        return True

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _linger(self) -> None:
        """Close without losing the answer: a close on top of unread bytes would reset the connection."""
        self._discard()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def _discard(self) -> None:
        """Nothing that is read from now on counts."""
        self.discarding_since, self.app_since = self.gate.clock(), None
        self.channel.repeat = None

    def _cycles(self) -> list[Any]:
        """Everything that is not answered yet, in order; `cycle` is the last of them."""
        waiting = [cycle for cycle, _app in reversed(self.pipeline)]
        return [cycle for cycle in (self.channel.serving, *waiting) if cycle is not None]

    def _last_answer(self) -> None:
        """What was read last is what is answered last."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def _refuse_connection(self, error: InferaError, head: RequestHead = _UNREAD) -> None:
        """Nothing after this can be understood: answer what is due, then close. Ids are new where no head was read."""
        if self.discarding_since is not None:
            return
        self._last_answer()
        self._discard()
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            self._refuse(error, head)
        elif self._waits_for_body():  # the app is left out of its answer
            cycle.disconnected = cycle.response_complete = True
            cycle.message_event.set()
            self._refuse(error, head)
        elif isinstance(cycle, Relay) and not cycle.complete:
            cycle.reject(error)

    def _waits_for_body(self) -> bool:
        """Whether the app is served what is read, lacks some of it, and has not begun to answer."""
        cycle = self.channel.serving
        if cycle is None or cycle is not self.cycle or isinstance(cycle, Relay):
            return False
        return bool(cycle.more_body and not cycle.response_started)

    def _refuse(self, error: InferaError, head: RequestHead) -> None:
        answer = Answer(self.transport, True, False)
        said = self.gate.refusal(self.url or b"", error)
        request, session = ids(head, self.gate.random_bytes)
        answer.refuse(said.status, said.body, marks.ids(request, session) + said.lines)
        self.gate.bus.emit(unread(request, session, self.url or b"", self.channel.peer, said.status, error, wall()))
        self._linger()

    def _wait_for_head(self) -> None:
        """A head arrives in pieces: mind its size, and since when it does."""
        self.head_bytes += self.read_bytes
        if self.head_since is None:
            self.head_since = self.gate.clock()
        if self.head_bytes > self.gate.options.limits.header_bytes:
            self._refuse_connection(self._headers_too_large())

    def _wait_for_body(self) -> None:
        """Amid a body: what comes and is none of it (a trailer, the extension of a chunk) may not go on for ever."""
        if self.fed:
            self.fed, self.head_bytes = False, 0
            return
        self.head_bytes += self.read_bytes
        if self.head_bytes > self.gate.options.limits.header_bytes:
            self._refuse_connection(self._headers_too_large())

    def _head_is_too_large(self) -> bool:
        limits = self.gate.options.limits
        if len(self.headers) + (self.length is not None) > limits.header_count:
            return True
        if self.read_bytes <= limits.header_bytes:
            return False
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > limits.header_bytes

    def _headers_too_large(self) -> HeadersTooLarge:
        limits = self.gate.options.limits
        return HeadersTooLarge(
            f"The request head, or a trailer, is over the limit of {limits.header_bytes} bytes or "
            f"{limits.header_count} fields (--max-header-size)."
        )


def _is_bad_target(error: BaseException) -> bool:
    """Whether a callback failed for the client's target alone, which is nothing for our log."""
    return isinstance(error.__context__, httptools.HttpParserInvalidURLError)


def bound_to(gate: Gate) -> type[ClientConnection]:
    """The protocol class for uvicorn: connections that enter by `gate`."""
    return type("GatedConnection", (ClientConnection,), {"gate": gate})
