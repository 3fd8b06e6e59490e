"""Requests against h11 as oracle: a worker gets exactly what h11 reads, or nothing (design.md §3; rulings 32).

Cases: every split point of small requests; 1,200 generated sound requests and 3,000 mutated ones with random splits
(`make fuzz`: new ones for INFERA_FUZZ_SECONDS). Corpus: `tests.fuzz.corpus` (SMUGGLING, `request`, `mutate`).
Oracle: `h11.Connection(SERVER)` on the client's bytes, and again on what the worker was sent.
"""

from __future__ import annotations

import random
import re

import pytest

from infera_cli.gateway.options import Limits, RelayOptions
from tests.fuzz.budget import LENGTHS, cuts, dice
from tests.fuzz.corpus import NEXT, SMUGGLING, mutate, request
from tests.fuzz.wire import Pair, Parsed, Pipe, World, as_request, as_response, feed, settle

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
OPTIONS = RelayOptions(limits=Limits(header_bytes=1 << 16, header_count=100))
DROPPED = {b"host", b"content-length", b"transfer-encoding", b"connection", b"keep-alive", b"te", b"trailer",
           b"upgrade", b"proxy-authorization", b"proxy-authenticate", b"proxy-connection", b"trailers", b"expect",
           b"x-hop", b"x-request-id", b"x-infera-request-id", b"x-worker-instance-id"}


def passed(pairs: list[Pair]) -> list[Pair]:
    """The headers that go up unchanged; an unsound session does not."""
    session = dict(pairs).get(b"x-session-id", b"")
    unsound = session and not re.fullmatch(rb"[A-Za-z0-9._:-]{1,128}", session)
    dropped = {*DROPPED, b"x-session-id"} if unsound else DROPPED
    return [(name, value) for name, value in pairs if name not in dropped]


async def exchange(world: World, data: bytes, places: list[int]) -> tuple[Pipe, list[Parsed]]:
    """Feed a new client's bytes, answer each request a worker gets; the client, and what workers were sent."""
    client = world.client()
    return client, await serve(world, client, data, places)


async def serve(world: World, client: Pipe, data: bytes, places: list[int]) -> list[Parsed]:
    """Feed a client's bytes, answer each request a worker gets; what workers were sent."""
    answered = {pipe: len(pipe.written) for pipe in world.workers}
    await feed(client, data, places)
    seen: list[Parsed] = []
    busy = True
    while busy:
        busy = False
        for pipe in world.workers:
            sent = bytes(pipe.written[answered.get(pipe, 0):])
            if sent and (got := as_request(sent)).whole:
                answered[pipe] = len(pipe.written)
                seen.append(got)
                pipe.feed(ANSWER)
                await settle()
                busy = True
            elif sent:
                seen.append(got)
                answered[pipe] = len(pipe.written)
    return seen


def refused(client: Pipe) -> bool:
    """The client was told 4xx and can say no more."""
    answer = as_response(bytes(client.written), ended=True)
    return client.over and answer.whole and 400 <= answer.status < 500


def same(got: Parsed, expected: Parsed) -> bool:
    """A worker got what h11 read: target, body and headers."""
    return (got.whole and not got.wrong and not got.rest and got.body == expected.body
            and got.target == expected.target and passed(got.pairs) == passed(expected.pairs))


SMALL = [
    b"POST /v1/completions?a=1 HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nX-a: 2\r\nContent-Length: 9\r\n\r\n{\"a\": 1}\n",
    b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\n[1\r\n1\r\n]\r\n0\r\nT: 1\r\n\r\n",
    b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    b"POST http://other/v1/completions?q HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
]


@pytest.mark.parametrize("data", SMALL)
async def test_every_split_point_of_a_request(data: bytes) -> None:
    """Wherever a request is cut, and cut again, the worker gets the same."""
    world = World(OPTIONS)
    expected = as_request(data)
    target = re.sub(rb"^http://other", b"", expected.target)
    for first in range(len(data) + 1):
        for places in ([first], [first, min(first + 1, len(data))]):
            client, (got,) = await exchange(world, data, places)
            assert (got.body, got.target, passed(got.pairs)) == (expected.body, target, passed(expected.pairs)), places
            assert as_response(bytes(client.written), ended=False).body == b"ok", places
            client.close()
            await world.reset()


async def test_one_byte_at_a_time() -> None:
    """Two pipelined requests that come byte by byte are two requests."""
    world = World(OPTIONS)
    data = SMALL[0] + SMALL[1]
    client, seen = await exchange(world, data, list(range(1, len(data))))
    assert [one.body for one in seen] == [b'{"a": 1}\n', b"[1]"]
    assert bytes(client.written).count(b"HTTP/1.1 200") == 2
    client.close()
    await world.reset()


@pytest.mark.parametrize("seconds", LENGTHS)
async def test_sound_requests_reach_the_worker_exactly(seconds: float) -> None:
    """What h11 reads from a sound request is what the worker reads: body, target, headers with order and repeats."""
    world = World(OPTIONS)
    for rng in dice(1200, "sound", seconds):
        data, body = request(rng)
        places = cuts(rng, len(data))
        expected = as_request(data)
        assert expected.body == body
        client, seen = await exchange(world, data, places)
        assert len(seen) == 1, (data, places, bytes(client.written))
        assert same(seen[0], expected), (data, places, seen[0].pairs)
        client.close()
        await world.reset()


@pytest.mark.parametrize("seconds", LENGTHS)
async def test_requests_that_resemble_each_other_are_kept_apart(seconds: float) -> None:
    """On one connection, heads that repeat, or differ by a byte, a digit or a body, are each read as h11 reads them."""
    world = World(OPTIONS)
    for rng in dice(300, "alike", seconds):
        client, base = world.client(), request(rng)[0]
        for turn in range(rng.randrange(2, 7)):
            data = alike(rng, base) if turn else base
            expected, before = as_request(single_spaced(data)), len(client.written)
            places = cuts(rng, len(data)) if rng.random() < 0.4 else []
            seen = await serve(world, client, data, places)
            context = (base, data, places, [one.body for one in seen])
            if seen:
                assert expected.whole, context
                assert same(seen[0], expected), context
            if not (expected.whole and len(seen) == 1 and not expected.rest) or client.over:
                told = client.over or len(client.written) > before
                assert seen or expected.wrong or not expected.whole or told, context
                break
        client.close()
        await world.reset()


def alike(rng: random.Random, data: bytes) -> bytes:
    """`data` again: another body, length or session, one byte changed, or the start of a next request behind it."""
    head, end, body = data.partition(b"\r\n\r\n")
    match rng.randrange(6):
        case 0:
            return data
        case 5:
            session = rng.choice((b"s2", b"x", b"\xe9", b"a b", b"y" * 128, b"y" * 129, b"a\tb", b"", b"s1, s2"))
            return re.sub(rb"(X-Session-Id: )[^\r]*", rb"\g<1>" + session.replace(b"\\", rb"\\"), head) + end + body
        case 1:
            other = rng.randbytes(rng.randrange(40))
            return re.sub(rb"(Content-Length: )[0-9]+", rb"\g<1>%d" % len(other), head) + end + (
                other if b"chunked" not in head else body)
        case 2:
            return re.sub(rb"(Content-Length: )[0-9]+", rb"\g<1>%d" % rng.randrange(1 + len(body)), head) + end + body
        case 3:
            return mutate(rng, data)
        case _:
            return data + data[:rng.randrange(1, len(data))]


@pytest.mark.parametrize("seconds", LENGTHS)
async def test_mutated_requests_are_read_as_h11_reads_them_or_refused(seconds: float) -> None:
    """Where h11 refuses, nothing is forwarded and the client is refused; else a worker gets h11's reading, or none."""
    world = World(OPTIONS)
    for rng in dice(3000, "mutated", seconds):
        data = mutate(rng, request(rng)[0])
        places = cuts(rng, len(data))
        client, seen = await exchange(world, data, places)
        context = (data, places, bytes(client.written)[:300], [one.pairs for one in seen])
        expected = as_request(single_spaced(data))
        if seen:
            assert not expected.wrong, context
            assert expected.whole, context
            assert same(seen[0], expected) or expected.target.startswith(b"http"), context
            for extra, reading in zip(seen[1:], following(data, expected), strict=False):
                assert same(extra, reading), context
        elif expected.wrong:
            elsewhere = bytes(client.written[:13]) == b"HTTP/1.1 404 "      # its path belongs to no worker
            assert refused(client) or elsewhere or not client.written, context
        client.close()
        await world.reset()


def single_spaced(data: bytes) -> bytes:
    """`data` from its request line on, with single spaces in it: more are harmless, that line is written anew."""
    first, end, rest = data.lstrip(b"\r\n").partition(b"\r\n")
    return re.sub(rb" +", b" ", first) + end + rest


def following(data: bytes, first: Parsed) -> list[Parsed]:
    """The further requests h11 reads from pipelined bytes."""
    out, current = [], first
    while current.whole and current.rest:
        current = as_request(current.rest)
        out.append(current)
    return out


@pytest.mark.parametrize("name", SMUGGLING)
async def test_smuggling_is_refused(name: str) -> None:
    """An ambiguous or malformed request reaches no worker, whole or split; it is 4xx and ends the connection."""
    world = World(OPTIONS)
    data = SMUGGLING[name]
    for places in ([], list(range(1, len(data))), *([n] for n in range(1, len(data), 7))):
        client, seen = await exchange(world, data + NEXT, places)
        assert seen == [], (places, seen[0].pairs, seen[0].body)
        assert refused(client), (places, bytes(client.written))
        client.close()
        await world.reset()


@pytest.mark.parametrize("name", SMUGGLING)
async def test_smuggling_behind_a_sound_request(name: str) -> None:
    """The request before it is served as ever, the one hidden behind it never."""
    world = World(OPTIONS)
    client, seen = await exchange(world, NEXT + SMUGGLING[name] + NEXT, [])
    assert [one.body for one in seen] in ([b"xyz"], []), [one.body for one in seen]
    assert client.over
    client.close()
    await world.reset()
