"""Stands between a worker's answer and the relay, and looks whether it reports an out-of-memory.

Failures are held back, as far as they have to be read, and so is the first event of a stream; all else passes at once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from infera_cli.gateway.upstream.http import Connection
from infera_cli.gateway.upstream.receiver import Receiver
from infera_cli.protocol import out_of_memory
from infera_cli.protocol.chunks import content_of
from infera_cli.protocol.headers import AnswerHead

if TYPE_CHECKING:
    from infera_cli.gateway.relay import Relay
    from infera_cli.gateway.trip import ScheduledTrip

log = logging.getLogger("infera.scheduler")


class MemoryGuard(Receiver):
    """For one attempt."""

    __slots__ = ("_connection", "_head", "_pieces", "_relay", "_size", "_status", "_streamed", "_trip")

    def __init__(self, relay: Relay, trip: ScheduledTrip) -> None:
        self._relay = relay
        self._trip = trip
        self._connection: Connection | None = None
        self._head: AnswerHead | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._status = 0
        self._streamed = False

    def on_head(self, connection: Connection, status: int, head: AnswerHead) -> None:
        """See Receiver."""
        self._status = status
        self._streamed = status == 200 and head.streamed and not head.encoded
        if self._streamed or (status in out_of_memory.STATUSES and not head.encoded):
            self._connection, self._head = connection, head
        else:
            self._relay.on_head(connection, status, head)

    def on_data(self, pieces: list[bytes], done: bool) -> None:
        """See Receiver."""
        if self._head is None:
            if self._streamed:
                self._watch(pieces)
            self._relay.on_data(pieces, done)
            return
        self._pieces += pieces
        self._size += sum(map(len, pieces))
        if done or (self._size and self._streamed) or self._size >= out_of_memory.READ_LIMIT:
            self._judge(done)

    def on_chunk(self, framed: bytes, size: int) -> None:
        """See Receiver."""
        if self._head is not None:
            self.on_data([content_of(framed)], False)
            return
        if self._streamed:
            self._watch([framed])
        self._relay.on_chunk(framed, size)

    def on_whole(self, head: AnswerHead, body: bytes) -> None:
        """See Receiver."""
        self._relay.on_whole(head, body)

    def on_broken(self, connection: Connection, detail: str) -> None:
        """See Receiver. What was held back of a broken answer is worth a look, but nothing to pass on."""
        head, self._head = self._head, None
        if head is None or not self._handed_over(connection, head, b"".join(self._pieces), done=False):
            self._relay.on_broken(connection, detail)

    def _judge(self, done: bool) -> None:
        """What was held back is known: pass it on, or have the request served elsewhere."""
        connection, head, body = self._connection, self._head, b"".join(self._pieces)
        self._head = None
        if connection is None or head is None or self._handed_over(connection, head, body, done=done):
            return
        if done and self._status == 500 and not body:
            self._trip.suspect()
        self._relay.on_head(connection, self._status, head)
        if self._relay.journey.state == "answering":
            self._relay.on_data(self._pieces, done)

    def _handed_over(self, connection: Connection, head: AnswerHead, body: bytes, *, done: bool) -> bool:
        """Whether it reports an out-of-memory, and another worker has the request now."""
        found = (out_of_memory.event_is_out_of_memory(body) if self._streamed
                 else out_of_memory.is_out_of_memory(self._status, body))
        if not found or not self._trip.ran_out_of_memory((self._status, head, body) if done else None):
            return False
        log.warning("%s ran out of memory; request %s goes elsewhere", connection.pool.spec.id, self._relay.id)
        return True

    def _watch(self, pieces: list[bytes]) -> None:
        """An error in mid-stream: nothing can be done for this request, but the node is known to be short."""
        for piece in pieces:
            if b'"error"' in piece and out_of_memory.event_is_out_of_memory(piece):
                self._trip.note_out_of_memory()
