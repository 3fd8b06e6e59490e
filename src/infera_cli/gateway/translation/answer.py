"""The client's half of a translated relay: an engine's head and body in, the client's API out.

Whole answers are translated by the relay; what is here are streams, and refusals, which wait until they are complete.
A stream may be opened before any worker answered, so that pings keep the client patient: the relay may then still go
to another worker, and a refusal becomes the stream's last event.
"""

from __future__ import annotations

from infera_cli.gateway.answer import Answer, status_line
from infera_cli.gateway.translation.dialect import Stream, Translation
from infera_cli.gateway.upstream.http import CHUNKED
from infera_cli.protocol.headers import AnswerHead

_STREAM_FIELDS = (
    b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\nx-accel-buffering: no\r\n"
)
_PLAIN_HEAD = AnswerHead([(b"content-type", b"application/json")])


class TranslatedAnswer(Answer):
    """An `Answer` that passes on as it is, until `translate` says what to make of it."""

    __slots__ = ("_opened", "_ours", "_refused", "_stream", "_translation", "holds_refusal")

    def __init__(self, plain: Answer) -> None:
        super().__init__(plain._transport, plain.http11, plain.keep_alive)  # noqa: SLF001 - takes its place
        self._translation: Translation | None = None
        self._stream: Stream | None = None
        self._opened = False
        self._ours = b""
        self._refused: list[bytes] = []
        self.holds_refusal = False
        """An engine's refusal is arriving; nothing of it was sent."""

    @property
    def is_plain(self) -> bool:
        """The engine speaks the client's API."""
        return self._translation is None

    def translate(self, translation: Translation | None) -> None:
        """An attempt begins: None passes on what comes."""
        self._translation = translation
        self._stream = translation.streamed() if translation is not None and translation.stream else None

    # ── what the relay says ──────────────────────────────────────────────────────────────────────────
    def begin(self, status: int, head: AnswerHead, framing: str, length: int, ours: bytes) -> None:
        """See Answer."""
        if status >= 400 and (self._translation is not None or self._opened):
            self.started, self.status, self._ours, self.holds_refusal = True, status, ours, True
        elif self._opened:
            self.started, self.status, self.encoded = True, status, head.encoded
        elif self._translation is None:
            super().begin(status, head, framing, length, ours)
        else:
            super().begin(status, head, CHUNKED, -1, ours)

    def data(self, pieces: list[bytes], done: bool) -> None:
        """See Answer; a refusal leaves when it is complete."""
        if self.holds_refusal:
            self._refused += pieces
            if done:
                self._refuse_translated(b"".join(self._refused))
        elif self._stream is None:
            super().data(pieces, done)
        else:
            out = self._stream.feed(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            if out or done:
                super().data([out] if out else [], done)
            else:
                self.chunks += 1  # the engine is alive, though it said nothing that is passed on

    def _refuse_translated(self, body: bytes) -> None:
        status = self.status
        if self._translation is not None:
            status, body = self._translation.refusal(status, body)
        self.refuse(status, body, self._ours)

    def finish(self, pieces: list[bytes]) -> str:
        """The engine ended its stream properly; how that went (`Stream.state`). A cut stream is left open."""
        assert self._stream is not None  # noqa: S101 - an answer that is translated and begins is a stream
        out = self._stream.feed(b"".join(pieces)) + self._stream.flush()
        state = self._stream.state
        super().data([out] if out else [], state != "cut")
        return state

    def refuse(self, status: int, body: bytes, ours: bytes) -> None:
        """See Answer; into a stream that is open, the refusal goes as its last event."""
        if not self._opened:
            super().refuse(status, body, ours)
            return
        self.started, self.status = True, status
        super().data([b"event: error\ndata: %b\n\n" % body], True)

    def break_off(self, event: bytes) -> None:
        """See Answer; of a refusal that was not complete nothing was sent yet, so the client gets a whole one."""
        if self.holds_refusal:
            self.refuse(502, event[event.index(b"data: ") + 6 :].strip(), self._ours)
        else:
            super().break_off(event)

    # ── patience ─────────────────────────────────────────────────────────────────────────────────────
    def ping(self, event: bytes, ours: bytes) -> None:
        """Tell a waiting client that its request is alive; opens the stream where nothing was sent yet."""
        if not self.streamed:
            self._opened = self.streamed = True
            self.status = 200
            self._pending = status_line(200) + _STREAM_FIELDS + ours + self._framing(200, CHUNKED, -1)
        frame = b"%x\r\n%b\r\n" % (len(event), event) if self._chunked else event
        self._write(self._pending + frame)
        self._pending = b""

    def own(self, body: bytes, ours: bytes) -> None:
        """A 200 of our own."""
        super().whole(_PLAIN_HEAD, body, ours)
