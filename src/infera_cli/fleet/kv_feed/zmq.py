"""One publisher over ZeroMQ: a SUB socket for what is new, a DEALER for what was missed (engines §1.8).

The sockets are read by the event loop as file descriptors; ZeroMQ's own thread does the network. Nothing here
waits, and receive queues have no limit, since a full one drops silently.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import zmq

from infera_cli.fleet.kv_feed.counters import FeedCounters
from infera_cli.fleet.kv_feed.follower import Follower, Sink
from infera_cli.protocol import kv_events

REPLAY_SECONDS = 5.0
"""A replay that brings nothing for so long has failed."""
REPLAY_MOST = 60.0
"""One that brings something for so long without an end is asked to go on from there."""
CUT_ABOVE = 4 * kv_events.MAX_PAYLOAD
"""A longer message (bytes) ends the connection before it is held; shorter ones that are too long are counted."""
GIVEN_UP = 1.0
"""Seconds after the end of a connection within which ZeroMQ says that it tries again, unless it does not mean to."""
_READS = 256
"""Messages taken from a socket before others get their turn."""

log = logging.getLogger("infera.kv")


class Ear(Sink, Protocol):
    """A sink that also hears of what is no batch."""

    def garbled(self, what: str) -> None:
        """Something came that cannot be read."""


class Reader:
    """Calls `hear` for each message of a socket, and tries again while messages are left (its descriptor is
    edge-triggered). `broke` is told if that fails."""

    def __init__(
        self, socket: zmq.Socket[bytes], hear: Callable[[list[bytes]], None], broke: Callable[[BaseException], None]
    ) -> None:
        self._socket = socket
        self._hear = hear
        self._broke = broke
        self._loop = asyncio.get_running_loop()
        self._fd = socket.fileno()
        self._again: asyncio.Handle | None = None
        self._loop.add_reader(self._fd, self.look)
        self.look_soon()

    def look_soon(self) -> None:
        """After a send, too: it may have eaten the edge."""
        if self._again is None:
            self._again = self._loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._again = None
        self.look()

    def look(self) -> None:
        """Read what is there."""
        for _ in range(_READS):
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            except zmq.ZMQError as error:
                log.debug("a KV event socket cannot be read: %s", error)
                return
            try:
                self._hear(frames)
            except Exception as fault:  # noqa: BLE001 - the loop would log it and leave the rest unread
                self._broke(fault)
                return
        self.look_soon()

    def close(self) -> None:
        """No more."""
        self._loop.remove_reader(self._fd)
        if self._again is not None:
            self._again.cancel()
        self._socket.close(linger=0)


class Publisher:
    """Follows the events of one rank. Addresses are ZeroMQ's; `replay` None: what is missed is gone.

    `broke` is told of a fault, after which this is to be closed. Raises what ZeroMQ does at an address it refuses.
    """

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], name: str, endpoint: str, replay: str | None, sink: Ear,
        counters: FeedCounters, *, broke: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self.name = name
        self.endpoint = endpoint
        self.counters = counters
        self._sink = sink
        self._broke = broke
        self._loop = asyncio.get_running_loop()
        self._context = context
        self._replay_endpoint = replay
        self._dealer: Reader | None = None
        self._dealer_socket: zmq.Socket[bytes] | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._hangs: asyncio.TimerHandle | None = None
        self._until = 0.0
        self.connected = False
        """Whether somebody listens at the other end."""
        self.follower = Follower(sink, counters, ask=self._ask if replay else None, tell=self._tell)
        self._socket = context.socket(zmq.SUB)
        self._readers: list[Reader] = []
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        socket = self._socket
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, CUT_ABOVE)
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.setsockopt(zmq.RECONNECT_IVL, 100)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 5000)
        watch = socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED
        )
        self._readers.append(Reader(watch, self._connection, self._broke))
        self._live = Reader(socket, self._hear, self._broke)
        self._readers.append(self._live)
        socket.connect(self.endpoint)
        self.follower.start()

    def close(self) -> None:
        """Stop following."""
        self._tries_again()
        self._drop_dealer()
        self._socket.disable_monitor()
        for reader in self._readers:
            reader.close()
        self._socket.close(linger=0)

    def check_tail(self) -> None:
        """See Follower."""
        if self.connected:
            self.follower.check_tail()

    def _hear(self, frames: list[bytes]) -> None:
        message = kv_events.read_frames(frames)
        if message is None:
            self._sink.garbled(f"a message of {_sizes(frames)} is no batch")
        else:
            self.follower.live(message.seq, message.payload)

    def _connection(self, frames: list[bytes]) -> None:
        event = int.from_bytes(frames[0][:2], "little")
        self._tries_again()
        if event == zmq.EVENT_CONNECT_RETRIED:
            return
        if event == zmq.EVENT_DISCONNECTED:
            self.connected = False
            self._hangs = self._loop.call_later(GIVEN_UP, self._safely, self._connect_anew)
            if self._replay_endpoint is None and self.counters.batches:
                self.follower.start()  # whoever speaks next is believed from its first word on
        else:
            self.connected = True
            if self._replay_endpoint is not None and self.counters.batches:
                self.follower.start()  # what was said meanwhile, or by another process, is asked for

    def _tries_again(self) -> None:
        if self._hangs is not None:
            self._hangs.cancel()
            self._hangs = None

    def _connect_anew(self) -> None:
        """ZeroMQ never comes back to a peer that broke its protocol, as by a message of an absurd length."""
        self._hangs = None
        self._sink.garbled("the connection ended over a message that is far too long, or not ZeroMQ's at all")
        with contextlib.suppress(zmq.ZMQError):
            self._socket.disconnect(self.endpoint)
        self._socket.connect(self.endpoint)
        self._live.look_soon()  # of a new connection the descriptor tells only once it was found empty

    def _safely(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as fault:  # noqa: BLE001 - the loop would log it and nobody would follow any more
            self._broke(fault)

    def _tell(self, sentence: str) -> None:
        log.warning("KV events of %s: %s", self.name, sentence)

    # ── replay ───────────────────────────────────────────────────────────────────────────────────────
    def _ask(self, start: int) -> None:
        """A fresh socket each time, so that answers to an older request are never taken for this one's."""
        assert self._replay_endpoint is not None  # noqa: S101 - else nobody asks
        self._drop_dealer()
        socket = self._dealer_socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, CUT_ABOVE)
        socket.connect(self._replay_endpoint)
        self._dealer = Reader(socket, self._hear_again, self._broke)
        socket.send_multipart(kv_events.replay_request(start), zmq.NOBLOCK)
        self._dealer.look_soon()
        self._until = self._loop.time() + REPLAY_MOST
        self._wait()

    def _hear_again(self, frames: list[bytes]) -> None:
        message = kv_events.read_replayed(frames)
        if message is None or message.seq is None:
            self._sink.garbled(f"a replayed message of {_sizes(frames)} is no batch")
        elif message.seq == kv_events.END:
            self._loop.call_soon(self._drop_dealer, self._dealer_socket)
            self._stop_waiting()
            self.follower.end_of_replay()
        else:
            self._wait()
            self.follower.replayed(message.seq, message.payload)

    def _wait(self) -> None:
        self._stop_waiting()
        until = min(self._loop.time() + REPLAY_SECONDS, self._until)
        self._patience = self._loop.call_at(until, self._safely, self._no_end)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _no_end(self) -> None:
        self._patience = None
        self.follower.no_end()
        if self._patience is None:  # nobody was asked again
            self._drop_dealer()

    def _drop_dealer(self, only: zmq.Socket[bytes] | None = None) -> None:
        if self._dealer is None or (only is not None and only is not self._dealer_socket):
            return
        dealer, self._dealer, self._dealer_socket = self._dealer, None, None
        dealer.close()
        if only is None:
            self._stop_waiting()


def accepts(context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> Exception | None:
    """Why ZeroMQ would not connect to such an address; None where it would."""
    with context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        try:
            socket.connect(endpoint)
        except (zmq.ZMQError, ValueError, TypeError) as refused:
            return refused
    return None


def _sizes(frames: Sequence[bytes]) -> str:
    return f"{len(frames)} frames, {sum(map(len, frames))} bytes"
