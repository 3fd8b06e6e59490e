"""Relays whose request or answer is rewritten. The plain relay knows nothing of them and pays nothing.

A translated request is routed like any other; only when its worker is known is it decided whether that engine speaks
the client's API itself. The engine's head is held back until there is something to say: until then another worker may
still take over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, ClassVar

from infera_cli.errors import InferaError, ModelNotFound, NoRoutableWorker, RequestError
from infera_cli.gateway.ports import Score
from infera_cli.gateway.relay import Relay
from infera_cli.gateway.translation.aliases import with_model
from infera_cli.gateway.translation.answer import TranslatedAnswer
from infera_cli.gateway.translation.dialect import Count, Dialect, Messages, Responses, Translation
from infera_cli.gateway.upstream.http import Connection, Pool
from infera_cli.protocol.chunks import content_of
from infera_cli.protocol.headers import AnswerHead, RequestHead
from infera_cli.protocol.messages.count import count_body
from infera_cli.protocol.peek import peek
from infera_cli.routing.types import Worker

if TYPE_CHECKING:
    from infera_cli.gateway.channel import Channel
    from infera_cli.gateway.gate import Gate
    from infera_cli.gateway.translation.desk import Desk

_log = logging.getLogger("infera.gateway")
_KEPT_HERE = frozenset(
    {
        b"accept-encoding", b"anthropic-version", b"anthropic-beta", b"anthropic-dangerous-direct-browser-access",
        b"x-api-key", b"openai-beta",
    }
)  # fmt: skip
"""Header fields that mean nothing to the engine's own API, or would make its answer unreadable here."""


class AliasedRelay(Relay):
    """A relay whose model may go by another name at the engines."""

    __slots__ = ("asked_model",)

    def __init__(
        self, gate: Gate, client: Channel, target: bytes, head: RequestHead, length: int,
        http11: bool, keep_alive: bool,
    ) -> None:  # fmt: skip
        super().__init__(gate, client, target, head, length, http11, keep_alive)
        self.asked_model: str | None = None

    @property
    def desk(self) -> Desk:
        """What all rewritten requests share."""
        assert self.gate.desk is not None  # noqa: S101 - these relays are made only where there is one
        return self.gate.desk

    def _start(self) -> None:
        aliases = self.desk.aliases
        if aliases and self.body and not self.head.is_form:
            asked = peek(self.body).model
            model = aliases.resolve(asked) if asked is not None else None
            if model is not None:
                self.asked_model = asked
                self.body = with_model(self.body, model)
        super()._start()

    def refuse(self, error: InferaError) -> None:
        """A model that nobody serves is told with the names that stand for others."""
        if isinstance(error, ModelNotFound):
            stands = f" {self.asked_model[:200]!r} stands for it." if self.asked_model is not None else ""
            names = ", ".join(sorted(self.desk.aliases.exact))
            told = error.message + stands + (f" Other names: {names}." if names else "")
            error = ModelNotFound(told, param=error.param, code=error.code)
        super().refuse(error)


class TranslatedRelay(AliasedRelay):
    """A relay that speaks to the engine in another API, unless the engine speaks the client's."""

    __slots__ = ("asked_worker", "held", "kept", "spoken", "translation")
    dialect: ClassVar[Dialect]

    def __init__(
        self, gate: Gate, client: Channel, target: bytes, head: RequestHead, length: int,
        http11: bool, keep_alive: bool,
    ) -> None:  # fmt: skip
        super().__init__(gate, client, target, head, length, http11, keep_alive)
        self.answer = self.spoken = TranslatedAnswer(self.answer)
        self.translation: Translation | None = None
        self.asked_worker: Worker | None = None
        self.held: tuple[Connection, int, AnswerHead] | None = None
        self.kept: list[bytes] = []

    # ── towards the engine ───────────────────────────────────────────────────────────────────────────
    def _send(self, connection: Connection, now: float) -> None:
        assert self.lease is not None  # noqa: S101 - a worker was picked
        worker = self.lease.worker
        speaks = self.desk.speakers.speaks(worker, self.dialect.path)
        if speaks is None and self.asked_worker is not worker:
            self.connection = connection
            self.connecting = asyncio.get_running_loop().create_task(self._ask_first(worker, connection))
        elif speaks:
            self.spoken.translate(None)
            super()._send(connection, now)
        else:
            self._send_translated(connection, now)

    async def _ask_first(self, worker: Worker, connection: Connection) -> None:
        await self.desk.speakers.ask(worker, self.dialect.path)
        self.connecting = self.connection = None
        self.asked_worker = worker
        if connection.transport.is_closing():
            self._connect_anew()
        else:
            self._send(connection, self.gate.clock())

    def _send_translated(self, connection: Connection, now: float) -> None:
        try:
            translation = self._translated()
        except RequestError as error:
            connection.abandon()
            self._score(Score.NEUTRAL)
            self.give_up(error, "rejected")
            return
        self.spoken.translate(translation)
        self.journey.move("sent")
        self.connection = connection
        self.sent = now
        receiver = self if self.trip is None else self.trip.receiver(self)
        connection.send(receiver, self._translated_head(connection.pool, len(translation.body)), translation.body)

    def _translated(self) -> Translation:
        if self.translation is None:
            assert self.body is not None  # noqa: S101 - nothing was answered yet
            self.translation = self.dialect.read(self.body, self.asked_model, self.id)
            if self.translation.dropped:
                _log.info("request %s: not told to the engine: %s", self.id, ", ".join(self.translation.dropped))
        return self.translation

    def _translated_head(self, pool: Pool, length: int) -> bytes:
        assert self.lease is not None  # noqa: S101 - a worker was picked
        strip = self.strip | _KEPT_HERE
        head = pool.heads.write(self.head, strip, self.dialect.stand_in, length, self.id, self.lease.rank)
        key = self._clients_key() if pool.spec.api_key is None else None
        return head if key is None else head[:-2] + b"authorization: Bearer %b\r\n\r\n" % key

    def _clients_key(self) -> bytes | None:
        """Anthropic's clients say x-api-key where engines want a bearer."""
        fields = self.head.fields
        if b"authorization" in fields or b"x-api-key" in self.strip:
            return None
        return fields.get(b"x-api-key") or None

    # ── from the engine ──────────────────────────────────────────────────────────────────────────────
    def on_head(self, connection: Connection, status: int, head: AnswerHead) -> None:
        """Hold back a success: nothing of it is known to be good before its first byte."""
        if self.spoken.is_plain or status >= 400:
            super().on_head(connection, status, head)
        elif status == 200 and head.streamed == self._translated().stream and not head.encoded:
            self.held = connection, status, head
        else:
            self._bad_answer(f"status {status}, {'a stream' if head.streamed else 'no stream'}, or an encoded body")

    def on_data(self, pieces: list[bytes], done: bool) -> None:
        """Let the head go with the first piece of a stream; gather an answer that is not streamed."""
        held = self.held
        if held is None:
            super().on_data(pieces, done)
            return
        head = held[2]
        if not head.streamed:
            self.kept += pieces
            if done:
                self.held = None
                self.on_whole(head, b"".join(self.kept))
        elif pieces or done:
            self.held = None
            self._translated().body = b""  # a conversation may be long, and its answer may take long
            connection, status, _head = held  # not *held: mypyc passes a starred tuple as one argument to super()
            super().on_head(connection, status, head)
            super().on_data(pieces, done)

    def on_chunk(self, framed: bytes, size: int) -> None:
        """A piece like any other."""
        self.on_data([content_of(framed)], False)

    def on_whole(self, head: AnswerHead, body: bytes) -> None:
        """A whole answer, translated."""
        if not self.spoken.is_plain:
            if head.streamed or head.encoded or self._translated().stream:
                self._bad_answer("another kind of answer than was asked for")
                return
            try:
                body = self._translated().whole(body)
            except ValueError as wrong:
                self._bad_answer(str(wrong))
                return
        super().on_whole(head, body)

    def _bad_answer(self, why: str) -> None:
        """The engine said 200 and made no sense: like a broken connection."""
        assert self.lease is not None  # noqa: S101 - somebody answered
        self._forget_answer()
        self._drop_connection()
        self._failed(self.lease.worker, Score.FAULT, "bad_answer", why)

    def on_broken(self, connection: Connection, detail: str) -> None:
        """What was held back or gathered is forgotten, so another worker may be asked."""
        self._forget_answer()
        super().on_broken(connection, detail)

    def _forget_answer(self) -> None:
        self.held = None
        self.kept = []

    def _finish(self, pieces: list[bytes]) -> None:
        if self.spoken.is_plain:
            super()._finish(pieces)
            return
        state = self.spoken.finish(pieces)
        if state == "cut":
            self._break_off("The worker ended the stream before the answer was complete.")
            return
        if not self.scored:
            self._score(Score.SUCCESS)
        self._end("done", "ok" if state == "done" else "broken")

    # ── patience ─────────────────────────────────────────────────────────────────────────────────────
    def patience(self, now: float, every: float) -> None:
        """The sweep came by: ping a client that has waited for `every` seconds."""
        quiet_since = max(self.moved, self.commented, self.sent)
        if not self.sent or now - quiet_since < every or self.journey.ended:
            return
        if not self.spoken.is_plain and self._translated().stream and not self.spoken.holds_refusal:
            self.spoken.ping(self.dialect.ping, self.ids())
            self.commented = now


class MessagesRelay(TranslatedRelay):
    """`/v1/messages`."""

    __slots__ = ()
    dialect = Messages()


class ResponsesRelay(TranslatedRelay):
    """`/v1/responses`."""

    __slots__ = ()
    dialect = Responses()


class CountRelay(TranslatedRelay):
    """`/v1/messages/count_tokens`: answered here where there is a tokenizer; no conversation, so it pins nothing."""

    __slots__ = ()
    dialect = Count()

    def attempt(self, now: float) -> None:
        """Count, or ask a worker to."""
        if not self._count_here():
            self.ask = self.ask.unpinned()
            super().attempt(now)

    def _count_here(self) -> bool:
        counter = self.desk.counter
        if counter is None:
            return False
        with contextlib.suppress(NoRoutableWorker):  # counting needs none; an unknown model is told as ever
            self.gate.dispatcher.fleet.view(self.ask.model, self.gate.clock())
        count = counter(self.ask.model, self._translated().body)
        if count is None:
            return False
        self.spoken.own(count_body(count), self.ids())
        self._end("refused", "ok")
        return True
