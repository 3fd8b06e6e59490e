"""One request as it was measured, and its form in a spool file.

All times are seconds from the start of the load on one monotonic clock of the load process; None where
the moment was never reached (bench-and-cli §0.1).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import msgspec

OK = "ok"
INCOMPLETE = "incomplete"
"""The run ended before the answer did: neither a success nor a failure (R158)."""

UNSENT = "unsent"
"""The run ended while it waited for a place below --max-concurrency: never sent, and nobody's failure (R158)."""

NOT_SENT = "not_sent"
"""Due, but the hard cap of open requests was reached."""


class Sample(msgspec.Struct, array_like=True, gc=False):
    """One request. `outcome` is ok, incomplete, unsent, or the class of the failure.

    `due` is when the load generator itself was free to send: the plan's instant, or when a place below
    `--max-concurrency` came free, or the previous turn's end and its pause. `sent` is the first sending also of what
    was sent again: the user has waited since then. `gaps` holds the times between
    token events, and `weights` the tokens of every token event where these are known.
    """

    index: int
    turn: int
    outcome: str
    measured: bool              # False for warm-up
    direct: bool                # sent to a worker, past the router
    worker: str                 # who answered, as far as is known
    scheduled: float | None     # the arrival plan's instant; None in a closed loop
    due: float
    sent: float                 # just before connect or write
    connected: float | None
    head: float | None          # response headers complete
    first: float | None         # first event with a generated token
    first_content: float | None  # the first that is not reasoning
    last: float | None          # last event with a generated token
    end: float                  # stream closed, failed or cut off
    events: int                 # token events
    asked: int | None           # intended prompt length
    wanted: int | None          # output length that was asked for
    input: int | None           # usage: prompt tokens
    output: int | None          # usage: completion tokens
    cached: int | None          # usage: prompt tokens from the prefix cache
    counted: int | None         # output by a local tokenizer
    status: int
    error: str
    finish: str
    timing: dict[str, float] = {}       # Server-Timing, seconds
    gaps: bytes = b""                   # uint32 microseconds
    weights: bytes = b""                # uint16 tokens
    text: str | None = None
    resent: int = 0             # how often it was sent again, its kept connection having just been closed
    odd_usage: str = ""         # why usage, or some of it, was passed over

    @property
    def ok(self) -> bool:
        """Whether it is a success."""
        return self.outcome == OK

    @property
    def failed(self) -> bool:
        """Whether it counts as a failure; the end of the run is nobody's."""
        return self.outcome not in (OK, INCOMPLETE, UNSENT)

    def tokens(self) -> tuple[int, str]:
        """(output tokens, who counted): server, tokenizer, or chunks, which is an estimate (R154)."""
        if self.output is not None:
            return self.output, "server"
        if self.counted is not None:
            return self.counted, "tokenizer"
        known = self.known_weights()
        return (sum(known), "server") if known else (self.events, "chunks")

    def gap_list(self) -> array[int]:
        """Gaps between token events in microseconds."""
        found = array("I")
        found.frombytes(self.gaps)
        return found

    def known_weights(self) -> array[int]:
        """Tokens of each token event, or empty when unknown."""
        found = array("H")
        found.frombytes(self.weights)
        return found


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Sample)


def pack(sample: Sample) -> bytes:
    """`sample` as a length-prefixed record."""
    record = _encoder.encode(sample)
    return len(record).to_bytes(4, "little") + record


def unpack(data: bytes) -> tuple[list[Sample], bytes]:
    """The whole records in `data`, and the bytes left over."""
    samples, at = [], 0
    while len(data) - at >= 4:
        size = int.from_bytes(data[at:at + 4], "little")
        if len(data) - at - 4 < size:
            break
        samples.append(_decoder.decode(data[at + 4:at + 4 + size]))
        at += 4 + size
    return samples, data[at:]


def unpack_all(chunks: Iterator[bytes]) -> Iterator[Sample]:
    """Every whole record of a spool read in chunks; a record cut off by a kill is dropped."""
    rest = b""
    for chunk in chunks:
        samples, rest = unpack(rest + chunk)
        yield from samples
