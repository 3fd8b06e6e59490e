"""Who gets an engine's answer. Base classes rather than protocols: compiled calls of those cost next to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infera_cli.protocol.chunks import content_of
from infera_cli.protocol.headers import AnswerHead

if TYPE_CHECKING:
    from infera_cli.gateway.upstream.http import Connection


class Receiver:
    """Who waits for the answer on a connection."""

    __slots__ = ()

    def on_head(self, connection: Connection, status: int, head: AnswerHead) -> None:
        """A final status line and its headers; the connection's `framing` is known."""

    def on_data(self, pieces: list[bytes], done: bool) -> None:
        """What one read brought after (or with) the head: body pieces, and whether the answer ended with them."""

    def on_chunk(self, framed: bytes, size: int) -> None:
        """One whole chunk and nothing else, as it came, with `size` bytes of content."""
        self.on_data([content_of(framed)], False)

    def on_whole(self, head: AnswerHead, body: bytes) -> None:
        """A 200 that is all here, instead of `on_head` and `on_data`."""

    def on_broken(self, connection: Connection, detail: str) -> None:
        """The connection ended or spoke nonsense before the answer was complete."""


class Sink:
    """Where the chunks of an answer go that has begun to leave."""

    __slots__ = ()

    def chunk(self, framed: bytes, size: int) -> None:
        """One whole chunk and nothing else, as it came, with `size` bytes of content."""
