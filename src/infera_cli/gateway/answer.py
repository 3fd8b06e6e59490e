"""The client's half of a relay: status line, headers, body framing, and how an answer breaks.

Framing is rebuilt, never passed on: a length where the worker gave one, chunks towards HTTP/1.1, the end of the
connection towards HTTP/1.0 (design.md §3).
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Final

from infera_cli.gateway.breaking import needs_last_words, reset
from infera_cli.gateway.upstream.http import EMPTY, LENGTH
from infera_cli.gateway.upstream.receiver import Sink
from infera_cli.protocol import sse
from infera_cli.protocol.chunks import content_of
from infera_cli.protocol.headers import AnswerHead

_TAIL_BYTES: Final = 4096
_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus
}


def status_line(status: int) -> bytes:
    """The first line of an answer, with its end."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


class Answer(Sink):
    """What the client gets, once; `started` closes the door on retries."""

    __slots__ = (
        "_chunked", "_end", "_fourth", "_last", "_left", "_pending", "_second", "_third", "_transport", "_write",
        "broken", "bytes_out", "chunks", "encoded", "http11", "keep_alive", "started", "status", "streamed",
    )  # fmt: skip

    def __init__(self, transport: asyncio.Transport, http11: bool, keep_alive: bool) -> None:
        self._write = transport.write  # what every chunk needs stands together, for the processor's cache
        self.chunks = self.bytes_out = 0
        self._chunked = False
        self._last = self._second = self._third = self._fourth = b""  # chunks in their frames, the newest first
        self._end = b""                                               # of the body before them
        self._transport = transport
        self.http11 = http11
        self.keep_alive = keep_alive
        self.started = self.streamed = self.encoded = self.broken = False
        self.status = 0
        self._left: int | None = None
        self._pending = b""

    def begin(self, status: int, head: AnswerHead, framing: str, length: int, ours: bytes) -> None:
        """Take over the worker's head; it leaves with the first data, in one write."""
        self.started = True
        self.status = status
        self.streamed = head.streamed
        self.encoded = head.encoded
        self._pending = status_line(status) + head.passed_on + ours + self._framing(status, framing, length)

    def whole(self, head: AnswerHead, body: bytes, ours: bytes) -> None:
        """A successful answer that is all here, in one write."""
        size = len(body)
        self.started = True
        self.status = 200
        self.encoded = head.encoded
        self.bytes_out = size
        if size:
            self.chunks = 1
            self._end = body if size <= _TAIL_BYTES else body[-_TAIL_BYTES:]
        self._write(
            b"HTTP/1.1 200 OK\r\n" + head.passed_on + ours + self._framing(200, LENGTH, size) + body
        )

    def _framing(self, status: int, framing: str, length: int) -> bytes:
        if framing == LENGTH:
            self._left = length
            fields = b"content-length: %d\r\n" % length
        elif framing == EMPTY:
            self._left = 0
            fields = b"" if status in {204, 304} else b"content-length: 0\r\n"
        elif self.http11:
            self._chunked = True
            fields = b"transfer-encoding: chunked\r\n"
        else:
            self.keep_alive = False
            fields = b""
        if self.keep_alive and self.http11:
            return fields + b"\r\n"
        return fields + (b"connection: keep-alive\r\n\r\n" if self.keep_alive else b"connection: close\r\n\r\n")

    def data(self, pieces: list[bytes], done: bool) -> None:
        """Pass on what one read brought."""
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        size = len(body)
        out = self._pending
        if size:
            self.chunks += 1
            self.bytes_out += size
            self._remember(body)
            if self._chunked:
                out += b"%x\r\n%b\r\n0\r\n\r\n" % (size, body) if done else b"%x\r\n%b\r\n" % (size, body)
            else:
                out = out + body if out else body
        elif done and self._chunked:
            out += b"0\r\n\r\n"
        if out:
            self._pending = b""
            self._write(out)

    def chunk(self, framed: bytes, size: int) -> None:
        """Pass on one chunk of a body that has begun to leave, as it came: `size` bytes of content in their frame."""
        self.chunks += 1
        self.bytes_out += size
        if self._fourth:
            self._end = b""  # four chunks are enough to tell how a stream ended; holding more costs cache
        self._fourth, self._third, self._second, self._last = self._third, self._second, self._last, framed
        self._write(framed if self._chunked else content_of(framed))

    def _remember(self, body: bytes) -> None:
        """The body goes on with `body`; keep how it ends."""
        if len(body) < _TAIL_BYTES:
            body = self.tail() + body
        self._end = body if len(body) <= _TAIL_BYTES else body[-_TAIL_BYTES:]
        self._last = self._second = self._third = self._fourth = b""

    def comment(self, text: bytes) -> bool:
        """Write an SSE comment into a silent stream; False where none may stand now."""
        if not (self.streamed and self._chunked and not self.encoded and sse.at_event_boundary(self.tail())):
            return False
        self._write(self._pending + b"%x\r\n%b\r\n" % (len(text), text))
        self._pending = b""
        return True

    def tail(self) -> bytes:
        """The last bytes of the body: all, or those of its last four reads, and at most 4 KiB."""
        if not self._last:
            return self._end
        chunks = [content_of(chunk) for chunk in (self._fourth, self._third, self._second, self._last) if chunk]
        return (self._end + b"".join(chunks))[-_TAIL_BYTES:]

    def break_off(self, event: bytes) -> None:
        """The worker died in mid-answer: say so where an event may stand, then break; no clean end (rulings 11)."""
        if self.streamed and not self.encoded and self._left is None and sse.at_event_boundary(self.tail()):
            frame = b"%x\r\n%b\r\n" % (len(event), event) if self._chunked else event
            self._write(self._pending + frame)
        elif self._pending:
            self._write(self._pending)
        self._pending = b""
        if needs_last_words(self._transport):
            self.broken, self.keep_alive = True, False  # the connection ends it, once these last words have left
        elif self._chunked or self._left is not None:
            self._transport.close()  # ending early is visible by itself, and what was written still leaves
        else:
            reset(self._transport)

    def refuse(self, status: int, body: bytes, ours: bytes) -> None:
        """An answer of our own."""
        self.started = True
        self.status = status
        self.bytes_out = len(body)
        closing = b"" if self.keep_alive else b"connection: close\r\n"
        head = b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b%b\r\n" % (
            status_line(status), len(body), ours, closing,
        )  # fmt: skip
        self._write(head + body)
