"""The client's connection: uvicorn's protocol, with relayed routes taken out before they become ASGI requests.

uvicorn keeps sockets, TLS, keep-alive, pipelining and the graceful stop; health, admin, docs and metrics go to the
FastAPI app on the same port. A relayed POST becomes a `Relay` at *headers complete* (design.md §3).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NamedTuple, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from infera_cli.errors import HeadersTooLarge, InferaError, RequestError
from infera_cli.gateway.answer import Answer
from infera_cli.gateway.gate import Gate, takes
from infera_cli.gateway.relay import Relay
from infera_cli.protocol.headers import RequestHead
from infera_cli.protocol.repeat import Repeat
from infera_cli.protocol.upgrade import without_offer

_LINGER_SECONDS = 5.0
_PIPELINE = 8
"""With more requests waiting than this nothing more is read; until then it is, so that a client's leaving is seen."""
_UNLIKE_ENOUGH = 8
"""A client whose heads differ this often in a row is taken at its word: its heads are no longer remembered."""
_log = logging.getLogger("infera.gateway")


class _Said(NamedTuple):
    """A head that was parsed, and what it meant."""

    heads: Repeat
    target: bytes
    head: RequestHead
    http11: bool
    kind: type[Relay]


class ClientConnection(HttpToolsProtocol):
    """One client connection. `gate` is set by `bound_to`."""

    gate: Gate

    # Slots over what uvicorn keeps in a dict: these are read for every request.
    __slots__ = (
        "between", "client", "cycle", "declined", "discarding_since", "flow", "head", "head_bytes", "head_since",
        "headers", "idle_since", "in_head", "length", "messages", "parser", "peer", "pipeline", "read_bytes", "repeat",
        "server_state", "serving", "transport", "unlike", "url",
    )  # fmt: skip

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config, server_state, app_state, _loop)
        self.cycle: Any = None    # the last request whose head was read: uvicorn's cycle or a Relay
        self.serving: Any = None  # the one that is being answered; pipelined ones wait behind it
        self.head = RequestHead([])
        self.length: bytes | None = None
        self.peer = ""
        self.in_head = False
        self.declined = b""  # the head that offered another protocol, less the offer
        self.between = True  # no part of a message was read since the last whole one
        self.messages = 0    # begun in this read
        self.repeat: _Said | None = None
        self.unlike = 0      # requests in a row that were no repeat
        self.read_bytes = 0
        self.idle_since: float | None = None
        self.head_since: float | None = None
        self.head_bytes = 0
        self.discarding_since: float | None = None

    # ── asyncio ──────────────────────────────────────────────────────────────────────────────────────
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self.peer = self.client[0] if self.client else ""  # address of the client
        self.idle_since = self.gate.clock()
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
        self.serving = None
        if isinstance(self.cycle, Relay):
            self.cycle = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.discarding_since is not None:
            return
        if self.between:
            said = self.repeat
            body = said.heads.body_of(data) if said is not None else None
            if said is not None and body is not None:
                self._take_repeat(said, body)
                return
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
            elif self.between and self.messages == 1 and self.unlike < _UNLIKE_ENOUGH:
                self._remember(data)

    def _decline(self, rest: bytes) -> None:
        """No protocol is changed here: read the request again as if it had not offered to, with its body."""
        head, self.declined = self.declined, b""
        if head and self.messages <= _PIPELINE:
            self.parser = httptools.HttpRequestParser(self)
            self._parse(head + rest)
        elif self.discarding_since is None:
            self._refuse_connection(RequestError("Only HTTP/1.1 and HTTP/1.0 are spoken here."))

    def pause_writing(self) -> None:
        super().pause_writing()
        if isinstance(self.serving, Relay):
            self.serving.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        if isinstance(self.serving, Relay):
            self.serving.resume()

    # ── httptools ────────────────────────────────────────────────────────────────────────────────────
    def on_message_begin(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.length = None
        self.in_head = True
        self.between = False
        self.messages += 1
        self.idle_since = None

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:  # a trailer: nobody here understands any, so none may pass for a header
            return
        name = name.lower()
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
        method = self.parser.get_method()
        if self.parser.should_upgrade() and method != b"CONNECT":
            version = self.parser.get_http_version()
            self.declined = without_offer(method, self.url, version, self.headers, self.length)
            return
        target = self.url
        if not target.startswith(b"/"):
            target = _origin_form(target)
        path = target.partition(b"?")[0]
        if takes(path) and method == b"POST":
            self._take_relay(target, path)
        else:
            self._to_app()

    def on_body(self, body: bytes) -> None:
        if self.discarding_since is not None:
            return
        if isinstance(self.cycle, Relay):
            self.cycle.take_body(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self.between = True
        if self.discarding_since is not None or self.declined:
            return
        if isinstance(self.cycle, Relay):
            self.cycle.take_end()
        else:
            super().on_message_complete()

    # ── whose turn it is ─────────────────────────────────────────────────────────────────────────────
    def _take_relay(self, target: bytes, path: bytes) -> None:
        version = self.parser.get_http_version()
        if self.headers != self.head.headers:
            self.head = RequestHead(self.headers)
        fault = self.head.fault(version)
        if fault is not None:
            self._refuse_connection(RequestError(fault))
            return
        keep_alive = self.parser.should_keep_alive()
        before = self.cycle
        length = int(self.length) if self.length is not None else 0
        kind = self.gate.kinds.get(path, Relay)
        self.cycle = relay = kind(self.gate, self, target, self.head, length, version == "1.1", keep_alive)
        self._serve_after(before, relay)

    def _serve_after(self, before: Any, relay: Relay) -> None:
        if before is None or before.response_complete:
            self.serving = relay
            relay.begin()
        else:
            if len(self.pipeline) >= _PIPELINE:
                self.flow.pause_reading()
            self.pipeline.appendleft((cast("Any", relay), self.app))

    # ── the same head again ──────────────────────────────────────────────────────────────────────────
    def _remember(self, data: bytes) -> None:
        """`data` was one whole request: should the next one begin with the same head, it need not be parsed."""
        self.unlike += 1
        relay = self.cycle
        self.repeat = None
        if isinstance(relay, Relay) and self.length is not None and relay.asked_to_keep_alive:
            heads = Repeat.of(data[: len(data) - relay.length])
            if heads is not None:
                self.repeat = _Said(heads, relay.target, relay.head, relay.answer.http11, type(relay))

    def _take_repeat(self, said: _Said, body: bytes) -> None:
        self.unlike = 0
        self.idle_since = None
        before = self.cycle
        self.cycle = relay = said.kind(self.gate, self, said.target, said.head, len(body), said.http11, True)
        relay.body = body
        relay.complete = True
        self._serve_after(before, relay)

    def _to_app(self) -> None:
        """Hand the request to uvicorn as if it had parsed the head itself."""
        url, headers = self.url, self.headers
        if self.length is not None:
            headers.append((b"content-length", self.length))
        super().on_message_begin()
        self.url = url
        for name, value in headers:
            super().on_header(name, value)
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self.serving = cycle
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
            self.idle_since = self.gate.clock()

    def relay_ended(self, relay: Relay) -> None:
        """The answer of `relay` has left, or its client has."""
        if self.transport.is_closing():
            return
        if relay.keep_alive:
            self.on_response_complete()
        elif relay.complete:
            self.transport.close()
        else:
            self._linger()

    # ── endings ──────────────────────────────────────────────────────────────────────────────────────
    def sweep(self, now: float) -> None:
        """Close the connection if it is idle, half-said or lingering for too long."""
        times = self.gate.options.timeouts
        if (
            (self.idle_since is not None and now - self.idle_since > times.keep_alive)
            or (self.head_since is not None and now - self.head_since > times.head)
            or (self.discarding_since is not None and now - self.discarding_since > _LINGER_SECONDS)
        ):
            self.transport.close()

    def _linger(self) -> None:
        """Close without losing the answer: a close on top of unread bytes would reset the connection."""
        self.discarding_since = self.gate.clock()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def _cycles(self) -> list[Any]:
        """Everything that is not answered yet, in order; `cycle` is the last of them."""
        waiting = [cycle for cycle, _app in reversed(self.pipeline)]
        return [cycle for cycle in (self.serving, *waiting) if cycle is not None]

    def _last_answer(self) -> None:
        """What was read last is what is answered last."""
        if self.cycle is not None:
            self.cycle.keep_alive = False

    def _refuse_connection(self, error: InferaError) -> None:
        """Nothing after this can be understood: answer what is due, then close."""
        self._last_answer()
        self.discarding_since = self.gate.clock()
        cycle = self.cycle
        if isinstance(cycle, Relay) and not cycle.complete and not cycle.response_complete:
            cycle.reject(error)
        elif cycle is None or cycle.response_complete:
            answer = Answer(self.transport, True, False)
            said = self.gate.refusal(self.url or b"", error)
            answer.refuse(said.status, said.body, said.lines)
            self._linger()

    def _wait_for_head(self) -> None:
        """A head arrives in pieces: mind its size, and since when it does."""
        self.head_bytes += self.read_bytes
        if self.head_since is None:
            self.head_since = self.gate.clock()
        if self.head_bytes > self.gate.options.limits.header_bytes:
            self._refuse_connection(self._headers_too_large())

    def _head_is_too_large(self) -> bool:
        limits = self.gate.options.limits
        if len(self.headers) > limits.header_count:
            return True
        if self.read_bytes <= limits.header_bytes:
            return False
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > limits.header_bytes

    def _headers_too_large(self) -> HeadersTooLarge:
        limits = self.gate.options.limits
        return HeadersTooLarge(
            f"The request head is over the limit of {limits.header_bytes} bytes or {limits.header_count} fields "
            "(--max-header-size)."
        )


def _is_bad_target(error: BaseException) -> bool:
    """Whether a callback failed for the client's target alone, which is nothing for our log."""
    return isinstance(error.__context__, httptools.HttpParserInvalidURLError)


def _origin_form(url: bytes) -> bytes:
    """The path and query of an absolute-form target."""
    parsed = httptools.parse_url(url)
    query = b"?" + parsed.query if parsed.query else b""
    return (parsed.path or b"/") + query


def bound_to(gate: Gate) -> type[ClientConnection]:
    """The protocol class for uvicorn: connections that enter by `gate`."""
    return type("GatedConnection", (ClientConnection,), {"gate": gate})
