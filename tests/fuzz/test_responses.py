"""Answers against h11 as oracle: the client gets exactly what h11 reads, or a visibly broken answer (rulings 32).

Cases: every split point of small answers; every truncation of them; 1,200 generated sound answers and 3,000 mutated
ones with random splits (`make fuzz`: new ones for INFERA_FUZZ_SECONDS). Corpus: `tests.fuzz.corpus` (`response`,
`mutate`), GARBAGE. Oracle: `h11.Connection(CLIENT)` on the worker's bytes, and on what the client received.
"""

from __future__ import annotations

import re

import pytest

from tests.fuzz.budget import LENGTHS, cuts, dice
from tests.fuzz.corpus import mutate, response
from tests.fuzz.wire import Pair, Parsed, SlowPipe, World, as_response, feed, settle

ASK = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
OURS = {b"x-request-id", b"x-infera-request-id", b"x-session-id", b"x-infera-worker", b"server-timing",
        b"cache-control", b"x-accel-buffering"}
DROPPED = OURS | {b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"te", b"trailer", b"upgrade",
                  b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"trailers", b"x-hop"}


def passed(pairs: list[Pair]) -> list[Pair]:
    """The headers that come down unchanged."""
    return [(name, value) for name, value in pairs if name not in DROPPED]


def same_reason(data: bytes) -> bytes:
    """`data` less what is not passed on: reason phrases, empty lines before heads, the framing of interim ones."""
    out, data = b"", data.lstrip(b"\r\n")
    while found := re.match(rb"(HTTP/1\.[01] ([0-9]{3}))(?: [^\r\n]*)?\r\n", data):
        out += found[1] + b" x\r\n"
        data = data[found.end():]
        if not found[2].startswith(b"1"):
            break
        fields, end, data = data.partition(b"\r\n\r\n") if not data.startswith(b"\r\n") else (b"", b"\r\n", data[2:])
        if found[2].startswith(b"1"):
            fields = re.sub(rb"(?i)(^|\r\n)(transfer-encoding|content-length):[^\r\n]*(?=\r\n|$)", rb"\1x: y", fields)
        out, data = out + fields + end, data.lstrip(b"\r\n")
    return out + data


async def relay(world: World, data: bytes, places: list[int], *, ended: bool) -> tuple[bytes, bool]:
    """Answer one request with `data`; what the client received, and whether its connection was ended."""
    client = world.client()
    await feed(client, ASK, [])
    (worker,) = world.workers
    await feed(worker, data, places)
    if ended:
        worker.end()
        await settle()
    received, over = bytes(client.written), client.over
    client.close()
    worker.close()
    await world.reset()
    return received, over


def judge(data: bytes, received: bytes, over: bool, *, ended: bool, exact: bool) -> None:
    """Hold what the client received against what h11 reads from the worker's bytes."""
    expected, got = as_response(same_reason(data), ended=ended), as_response(received, ended=over)
    if not got.first:
        assert not expected.whole, "an answer was lost"
        assert not received, "the client got something that is no answer"
        return
    ours = got.status == 502 and not (expected.first and expected.status == 502)
    if ours:
        assert not exact, "a sound answer was refused"
        assert got.whole, "our own answer is not whole"
    elif expected.whole and not expected.wrong:
        assert got.status == expected.status
        assert passed(got.pairs) == passed(expected.pairs)
        assert (got.body == expected.body and got.whole) or (not exact and not got.whole)
    else:
        assert expected.first, "h11 sees no head here, yet the client got an answer"
        assert not got.whole, "a broken answer looks whole"
        told, error, _ = got.body.partition(b'data: {"error":{"message":"The worker broke off')
        assert expected.body.startswith(told) or (told.startswith(expected.body) and not error)


SMALL = [
    (b"HTTP/1.1 200 OK\r\nX-A: b\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 7\r\n\r\n{\"a\":1}", False),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n4\r\ndefg\r\n0\r\nX-Sum: 1\r\n\r\n", False),
    (b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end", True),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 422 No\r\nContent-Length: 2\r\n\r\nno", False),
    (b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n", False),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", True),
]


@pytest.mark.parametrize(("data", "ended"), SMALL)
async def test_every_split_point_of_an_answer(data: bytes, ended: bool) -> None:
    """Wherever an answer is cut, and cut again, the client gets the same."""
    world = World()
    for first in range(len(data) + 1):
        for places in ([first], [first, min(first + 1, len(data))]):
            received, over = await relay(world, data, places, ended=ended)
            judge(data, received, over, ended=ended, exact=True)
    received, over = await relay(world, data, list(range(1, len(data))), ended=ended)
    judge(data, received, over, ended=ended, exact=True)


@pytest.mark.parametrize(("data", "ended"), SMALL)
async def test_every_truncation_of_an_answer(data: bytes, ended: bool) -> None:
    """An answer that ends early is 502 before its head is complete, and visibly broken after."""
    world = World()
    for size in range(len(data)):
        received, over = await relay(world, data[:size], [], ended=True)
        judge(data[:size], received, over, ended=True, exact=False)
        got = as_response(received, ended=over)
        assert got.first is not None, size
        assert over or got.whole, size


@pytest.mark.parametrize("seconds", LENGTHS)
async def test_sound_answers_reach_the_client_exactly(seconds: float) -> None:
    """Status, headers with order and repeats, and body are h11's reading of the worker's bytes."""
    world = World()
    for rng in dice(1200, "sound answers", seconds):
        data, ended = response(rng)
        places = cuts(rng, len(data))
        received, over = await relay(world, data, places, ended=ended)
        try:
            judge(data, received, over, ended=ended, exact=True)
        except AssertionError as wrong:
            raise AssertionError(f"{wrong}\n{data!r}\n{places}\n{received!r}") from wrong


@pytest.mark.parametrize("seconds", LENGTHS)
async def test_mutated_answers_are_exact_or_visibly_broken(seconds: float) -> None:
    """A client never takes for whole and true what h11 reads otherwise from the worker."""
    world = World()
    for rng in dice(3000, "mutated answers", seconds):
        data = mutate(rng, response(rng)[0])
        places = cuts(rng, len(data))
        received, over = await relay(world, data, places, ended=True)
        try:
            judge(data, received, over, ended=True, exact=False)
        except AssertionError as wrong:
            raise AssertionError(f"{wrong}\n{data!r}\n{places}\n{received!r}") from wrong


GARBAGE: dict[str, bytes] = {
    "nothing": b"",
    "an empty line": b"\r\n",
    "a greeting": b"hello\r\n\r\n",
    "zeros": b"\0" * 100,
    "half a status line": b"HTTP/1.1",
    "a status line without end": b"HTTP/1.1 200",
    "status 0": b"HTTP/1.1 0 x\r\n\r\n",
    "status 004 before an answer": b"HTTP/1.1 004 x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "another version": b"HTTP/9.9 200 OK\r\n\r\n",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nxx",
    "two codings": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bare line feeds": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "a folded line": b"HTTP/1.1 200 OK\r\nX: 1\r\n folded\r\nContent-Length: 2\r\n\r\nok",
    "an upgrade": b"HTTP/1.1 101 Switching Protocols\r\n\r\nxx",
    "only interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 3,
    "a request": b"POST / HTTP/1.1\r\n\r\n",
    "NUL in a name": b"HTTP/1.1 200 OK\r\nX\0: 1\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_is_502(name: str) -> None:
    """What is no answer, or ambiguous, is a whole 502 of ours with an error object."""
    world, data = World(), GARBAGE[name]
    for places in ([], list(range(1, len(data)))):
        received, over = await relay(world, data, places, ended=True)
        got = as_response(received, ended=over)
        assert got.whole, received
        assert got.status == 502, received
        assert b'"error"' in got.body


async def test_an_answer_after_the_answer_is_never_anybodys() -> None:
    """Bytes behind a complete answer end that connection: the next request gets an answer of its own."""
    world = World()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1"
    stray = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"
    for cut in range(len(answer), len(answer + stray) + 1):
        client = world.client()
        await feed(client, ASK, [])
        await feed(world.workers[0], answer + stray, [cut])
        await feed(client, ASK, [])
        if len(world.workers) > 1:
            await feed(world.workers[-1], answer.replace(b"\r\n\r\n1", b"\r\n\r\n2"), [])
        assert b"stray" not in client.written, cut
        client.close()
        await world.reset()


@pytest.mark.parametrize("seconds", LENGTHS)
async def test_a_worker_connection_is_reused_only_after_a_whole_answer(seconds: float) -> None:
    """Answers in a row on one client connection, alike or not: each is judged on its own."""
    world = World()
    for rng in dice(300, "pairs", seconds):
        client, start = world.client(), 0
        data, ended = response(rng)
        for _ in range(rng.randrange(2, 6)):
            if rng.random() < 0.4:
                data, ended = response(rng)
            elif rng.random() < 0.5:
                data = with_body(data, rng.randbytes(rng.randrange(40)))
            await feed(client, ASK, [])
            worker = next(pipe for pipe in reversed(world.workers) if not pipe.closed)
            await feed(worker, data, cuts(rng, len(data)))
            if ended:
                worker.end()
                await settle()
            judge(data, bytes(client.written[start:]), client.over, ended=ended, exact=True)
            start = len(client.written)
        client.close()
        await world.reset()


@pytest.mark.parametrize(("data", "ended"), [(data, ended) for data, ended in SMALL if not ended])
async def test_a_slow_client_leaves_no_worker_connection_paused(data: bytes, ended: bool) -> None:
    """An answer may end in the very moment in which its client falls behind: the next request finds a connection that
    is read from."""
    world = World()
    for client in (world.client(SlowPipe), world.client(), world.client(SlowPipe)):
        await feed(client, ASK, [])
        (worker,) = world.workers
        await feed(worker, data, [len(data) - 1])
        judge(data, bytes(client.written), client.over, ended=ended, exact=True)
        assert worker.reading
        client.close()
    await world.reset()


def with_body(data: bytes, body: bytes) -> bytes:
    """The same answer with another body, if it has a length; else as it is."""
    head, end, _ = data.partition(b"\r\n\r\n")
    if data.startswith(b"HTTP/1.1 1") or b"\r\nContent-Length: " not in head:
        return data
    return re.sub(rb"(Content-Length: )[0-9]+", rb"\g<1>%d" % len(body), head) + end + body


def test_the_oracle_sees_a_cut() -> None:
    """The reference reading of a truncated chunked answer is not whole."""
    cut: Parsed = as_response(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", ended=True)
    assert cut.wrong
    assert not cut.whole
