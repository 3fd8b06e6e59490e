"""Records what is served, without what is said: times, lengths, and which beginnings of prompts were equal.

Off, it costs nothing: the tap is a `Plan` that is in the gate only while somebody records. A prompt's text is cut into
pages of 256 bytes, and each is named by a keyed hash of itself and all before it. The key is made for the recording and
kept nowhere, so names of two recordings have nothing in common and nobody can test a guess against a name.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from infera_cli.errors import InferaError
from infera_cli.events import RequestDone
from infera_cli.gateway.identity import identify
from infera_cli.gateway.plan import Plan, go_on
from infera_cli.protocol import prompt_text
from infera_cli.protocol.prompt_text import Asked

if TYPE_CHECKING:
    from infera_cli.gateway.gate import Gate
    from infera_cli.gateway.relay import Relay

PAGE = 64
"""Tokens that a block id stands for, at four bytes of text a token."""
BYTES_PER_TOKEN = 4
UNSENT = 10_000
"""Lines that wait for a slow reader; further ones are dropped and counted."""
BEAT_SECONDS = 1.0
LATE_SECONDS = 60.0
"""How long after its end a recording waits for answers that had begun."""

Usage = Callable[[bytes], tuple[int, int, int] | None]
"""Reads (prompt, completion, cached) tokens off the end of an answer."""


class Begun(msgspec.Struct, frozen=True, gc=False):
    """A request whose answer is not over: names of its pages, its length in tokens of four bytes, and its session key,
    None where the client gave none: then the one that it is answered with counts."""

    pages: list[int]
    tokens: int
    session: str | None


class Recording:
    """One recording; `lines` gives its rows as they become known."""

    def __init__(self, seconds: float, usage: Usage, *, clock: Callable[[], float], epoch: float) -> None:
        self._key = secrets.token_bytes(32)
        self._usage = usage
        self._clock = clock
        self._until = clock() + seconds
        self._start = epoch + clock()
        self._open: dict[str, Begun] = {}
        self._lines: asyncio.Queue[bytes] = asyncio.Queue(UNSENT)
        self.dropped = 0

    @property
    def over(self) -> bool:
        """New requests are no longer taken."""
        return self._clock() >= self._until

    def begin(self, request: str, asked: Asked, session: str | None) -> None:
        """A request came."""
        if self.over:
            return
        text = b"".join(_solid(asked))
        pages = self._pages(text, asked.peek.model or "")
        self._open[request] = Begun(pages, -(-len(text) // BYTES_PER_TOKEN), session)

    def end(self, done: RequestDone) -> None:
        """A request is over; only complete answers become rows."""
        begun = self._open.pop(done.id, None)
        if begun is None or done.outcome != "ok":
            return
        try:
            self._lines.put_nowait(msgspec.json.encode(self._row(begun, done)) + b"\n")
        except asyncio.QueueFull:
            self.dropped += 1

    async def lines(self, stopped: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Rows until the time is up and all that had begun is over; an empty line while there is nothing."""
        while not (stopped() or (self.over and self._settled())):
            try:
                yield await asyncio.wait_for(self._lines.get(), BEAT_SECONDS)
            except TimeoutError:
                yield b"\n"

    def _settled(self) -> bool:
        waited = self._clock() - self._until >= LATE_SECONDS
        return self._lines.empty() and (not self._open or waited)

    def _row(self, begun: Begun, done: RequestDone) -> dict[str, Any]:
        usage = self._usage(done.tail)
        row: dict[str, Any] = {
            "timestamp": max(0, round((done.started - self._start) * 1000)),
            "input_length": usage[0] if usage and usage[0] else begun.tokens,
            "output_length": usage[1] if usage and usage[1] else max(1, done.chunks),
            "hash_ids": begun.pages,
            "block_size": PAGE,
        }
        session = begun.session or (f"session:{done.session}" if done.session else None)
        if session is not None:
            row["session"] = self._name(session)
        return row

    # ── names ────────────────────────────────────────────────────────────────────────────────────────
    def _pages(self, text: bytes, model: str) -> list[int]:
        digest, width = model.encode("utf-8", "surrogatepass"), PAGE * BYTES_PER_TOKEN
        pages: list[int] = []
        for start in range(0, len(text), width):
            digest = hashlib.blake2b(digest + text[start : start + width], key=self._key, digest_size=16).digest()
            pages.append(int.from_bytes(digest[:7], "big") >> 4)    # 52 bits: exact in every JSON reader
        return pages

    def _name(self, session: str) -> str:
        return hashlib.blake2b(session.encode("utf-8", "surrogatepass"), key=self._key, digest_size=8).hexdigest()


def _solid(asked: Asked) -> Iterator[bytes]:
    """All of a prompt as bytes that are equal when it is."""
    for system, text, rest in asked.pieces:
        yield b"\1" if system else b"\2"
        yield text
        yield rest


class Tracing:
    """The recordings of a server. Hand it finished requests with `add`."""

    def __init__(self, gate: Gate, usage: Usage) -> None:
        self._gate = gate
        self._usage = usage
        self._recordings: list[Recording] = []
        self._before: Plan | None = None

    async def record(self, seconds: float, stopped: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Rows of a new recording, until it is over, the reader leaves, or `stopped`."""
        recording = Recording(seconds, self._usage, clock=self._gate.clock, epoch=self._gate.epoch)
        if not self._recordings:
            self._before, self._gate.plan = self._gate.plan, self
        self._recordings.append(recording)
        try:
            yield b"\n"     # the reader knows that it has begun
            async for line in recording.lines(stopped):
                yield line
        finally:
            self._recordings.remove(recording)
            if not self._recordings:
                self._gate.plan, self._before = self._before, None

    def add(self, batch: Sequence[RequestDone]) -> None:
        """Requests that are over."""
        for recording in self._recordings:
            for done in batch:
                recording.end(done)

    # ── gateway.plan.Plan ────────────────────────────────────────────────────────────────────────────
    def begin(self, relay: Relay) -> None:
        """See Plan: look, then let the request go on as it would have."""
        body = relay.body or b""
        model, session, pin = identify(relay.head, body, self._gate.random_bytes)
        self._look(relay, body, pin)
        go_on(relay, self._before, model, session, pin)

    def _look(self, relay: Relay, body: bytes | bytearray, pin: str) -> None:
        try:
            asked = prompt_text.read(body)
        except InferaError:
            return      # its own way will say so
        given = relay.head.session is not None or asked.peek.session is not None
        for recording in self._recordings:
            recording.begin(relay.id, asked, pin if given else None)
