"""What leaves towards the client is what came, and its end is remembered."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from infera_cli.gateway.answer import Answer
from infera_cli.gateway.upstream.http import CHUNKED
from infera_cli.protocol.chunks import size_of_one_chunk
from infera_cli.protocol.headers import AnswerHead

HEAD = AnswerHead([(b"content-type", b"text/event-stream")])
SMALL, LARGE = st.binary(min_size=1, max_size=90), st.binary(min_size=96, max_size=600).map(lambda read: read * 12)
READS = st.lists(SMALL | LARGE, min_size=1)


class Written:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


def stream(reads: list[bytes], *, http11: bool) -> tuple[Answer, bytes]:
    """An answer of those reads, which went as one chunk where they are one, and what was written after its head."""
    written: Any = Written()
    answer = Answer(cast("asyncio.Transport", written), http11, True)
    answer.begin(200, HEAD, CHUNKED, -1, b"")
    for at, body in enumerate(reads):
        framed = b"%x\r\n%b\r\n" % (len(body), body)
        size = size_of_one_chunk(framed)
        if size and at:
            answer.chunk(framed, size)
        else:
            answer.data([body], False)
    answer.data([], True)
    return answer, written.data.partition(b"\r\n\r\n")[2]


@given(READS)
def test_every_read_leaves_as_it_came(reads: list[bytes]) -> None:
    """In chunks towards HTTP/1.1, bare towards HTTP/1.0."""
    assert stream(reads, http11=False)[1] == b"".join(reads)
    framed = b"".join(b"%x\r\n%b\r\n" % (len(body), body) for body in reads) + b"0\r\n\r\n"
    answer, told = stream(reads, http11=True)
    assert told == framed
    assert (answer.chunks, answer.bytes_out) == (len(reads), sum(map(len, reads)))


@given(READS)
def test_the_tail_holds_at_least_the_last_four_reads(reads: list[bytes]) -> None:
    """Up to 4 KiB of them, and nothing that was not there."""
    tail = stream(reads, http11=True)[0].tail()
    assert b"".join(reads).endswith(tail)
    assert len(tail) <= 4096
    assert tail.endswith(b"".join(reads[-4:])[-4096:])
