"""What the data plane needs of an API that some engines speak and others must be spoken to for."""

from __future__ import annotations

from typing import ClassVar, Protocol

import msgspec

from infera_cli.errors import RequestError
from infera_cli.protocol.messages.answer import to_message
from infera_cli.protocol.messages.count import to_count
from infera_cli.protocol.messages.ending import message_id
from infera_cli.protocol.messages.errors import engine_error
from infera_cli.protocol.messages.request import ChatAsk, to_chat, to_tokenize
from infera_cli.protocol.messages.stream import PING, MessageStream
from infera_cli.protocol.responses.answer import to_response
from infera_cli.protocol.responses.errors import engine_error as openai_engine_error
from infera_cli.protocol.responses.items import response_id
from infera_cli.protocol.responses.request import ResponseAsk
from infera_cli.protocol.responses.request import to_chat as responses_to_chat
from infera_cli.protocol.responses.stream import ResponseStream
from infera_cli.protocol.sse import KEEP_ALIVE


class Stream(Protocol):
    """A streamed answer, translated as it arrives."""

    @property
    def state(self) -> str:
        """After `flush`: done, aborted (the client was told of a failure) or cut (it was not)."""

    def feed(self, data: bytes) -> bytes:
        """What the client gets for what the engine sent."""

    def flush(self) -> bytes:
        """The same for the engine's proper end."""


class Translation(Protocol):
    """One request in the engine's words, and the way back."""

    body: bytes
    """What the engine reads; emptied when it has read it."""

    @property
    def stream(self) -> bool:
        """Whether the client waits for a stream."""

    @property
    def dropped(self) -> tuple[str, ...]:
        """Kinds of content that the engine is not told of, for one line of the log."""

    def whole(self, body: bytes) -> bytes:
        """The client's form of a whole answer. Raises ValueError when the engine's is no answer."""

    def refusal(self, status: int, body: bytes) -> tuple[int, bytes]:
        """The client's form of an engine's refusal."""

    def streamed(self) -> Stream:
        """The translator of a stream, from its beginning."""


class Dialect(Protocol):
    """An API: its route here, and the route of engines that stands in for it."""

    path: str
    stand_in: bytes
    ping: bytes

    def read(self, body: bytes | bytearray, shown: str | None, request: str) -> Translation:
        """Translate the body of the request with that id; `shown` is the client's name of the model, where it is
        another one. Raises RequestError."""


# ── Messages ─────────────────────────────────────────────────────────────────────────────────────────
class _MessagesTranslation:
    def __init__(self, ask: ChatAsk, request: str) -> None:
        self._ask = msgspec.structs.replace(ask, body=b"")
        self._name = message_id(request)
        self.body, self.stream, self.dropped = ask.body, ask.stream, ask.dropped

    def whole(self, body: bytes) -> bytes:
        return to_message(body, self._ask, self._name)

    def refusal(self, status: int, body: bytes) -> tuple[int, bytes]:
        return engine_error(status, body, self._ask.max_tokens)

    def streamed(self) -> Stream:
        return MessageStream(self._ask, self._name)


class Messages:
    """`/v1/messages` over chat."""

    path = "/v1/messages"
    stand_in = b"/v1/chat/completions"
    ping = PING

    def read(self, body: bytes | bytearray, shown: str | None, request: str) -> Translation:
        """See Dialect."""
        return _MessagesTranslation(to_chat(body, shown), request)


class _ResponsesTranslation:
    def __init__(self, ask: ResponseAsk, request: str) -> None:
        self._ask = msgspec.structs.replace(ask, body=b"")
        self._name = response_id(request)
        self.body, self.stream, self.dropped = ask.body, ask.stream, ask.dropped

    def whole(self, body: bytes) -> bytes:
        return to_response(body, self._ask, self._name)

    def refusal(self, status: int, body: bytes) -> tuple[int, bytes]:
        return openai_engine_error(status, body)

    def streamed(self) -> Stream:
        return ResponseStream(self._ask, self._name)


class Responses:
    """`/v1/responses` over chat."""

    path = "/v1/responses"
    stand_in = b"/v1/chat/completions"
    ping = KEEP_ALIVE

    def read(self, body: bytes | bytearray, shown: str | None, request: str) -> Translation:
        """See Dialect."""
        return _ResponsesTranslation(responses_to_chat(body, shown), request)


class _CountTranslation:
    stream: ClassVar[bool] = False

    def __init__(self, ask: ChatAsk) -> None:
        self.body, self.dropped = ask.body, ask.dropped

    def whole(self, body: bytes) -> bytes:
        return to_count(body)

    def refusal(self, status: int, body: bytes) -> tuple[int, bytes]:
        if status in {404, 405, 501}:
            body = b'{"detail":"No tokenizer is configured here, and the engine counts no tokens."}'
            status = 404
        return engine_error(status, body, None)

    def streamed(self) -> Stream:
        raise RequestError("A count is not streamed.")


class Count:
    """`/v1/messages/count_tokens` over an engine's `/tokenize`."""

    path = "/v1/messages/count_tokens"
    stand_in = b"/tokenize"
    ping = b""

    def read(self, body: bytes | bytearray, shown: str | None, request: str) -> Translation:
        """See Dialect."""
        return _CountTranslation(to_tokenize(body))
