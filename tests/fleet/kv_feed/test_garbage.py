"""Rubbish on an event stream: one line, a counter, never a crash, never a wrong hit (R085; engines §1.8)."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import struct
import time

import msgspec
import pytest
import zmq

from infera_cli.fleet.kv_feed import complaints
from infera_cli.fleet.kv_feed import intake as intake_module
from infera_cli.fleet.kv_feed import zmq as zmq_module
from infera_cli.fleet.kv_feed.counters import FeedCounters
from infera_cli.protocol.kv_events import MAX_PAYLOAD, parts
from infera_cli.routing.prefix import Slot
from tests.fleet.kv_feed.worlds import SIZE, Noise, World, stored, tokens_of


async def listening(world: World, noise: Noise) -> Slot:
    slot = world.add("w", None, kv_events_endpoint=noise.endpoint)
    await noise.heard()
    return slot


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


GARBAGE = {
    "frames": (b"a", b"b", b"c", b"d"),
    "number": (b"kv-events", b"short", b"payload"),
    "bytes": (b"kv-events", b"\xc1 this is no batch"),
    "event": (b"kv-events", msgspec.msgpack.encode([0.0, [{"type": "BlockStored"}], 0])),
    "does not add up": (b"kv-events", msgspec.msgpack.encode([0.0, [stored(tokens_of(1), block_size=7)], 0])),
}


@pytest.mark.parametrize("kind", list(GARBAGE))
async def test_garbage_is_one_line_and_all_of_it_is_counted(
    world: World, noise: Noise, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Two hundred bad messages: one warning that names the stream, two hundred counted, and no hit of them."""
    slot = await listening(world, noise)
    for _ in range(200):
        noise.say(*GARBAGE[kind])
    noise.say(b"kv-events", msgspec.msgpack.encode([0.0, [stored(tokens_of(3, 1))], 0]))
    await world.until(slot, tokens_of(3, 1), 3)
    counters = world.feed.counters["w"]
    assert counters.malformed + counters.refused == 200
    (line,) = lines(caplog)
    assert line.startswith("KV events of w: ")
    assert len(slot) == 3


async def test_a_stream_that_was_good_again_is_told_of_again(
    world: World, noise: Noise, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few good batches between bad ones are no end of it; many in a row are."""
    monkeypatch.setattr(complaints, "GOOD_AFTER", 5)
    slot = await listening(world, noise)
    for good, told in ((4, 1), (5, 1), (0, 2)):
        noise.payload(b"\xc1")
        for _ in range(good):
            noise.batch(stored(tokens_of(2)))
        noise.batch({"type": "AllBlocksCleared"}, stored(tokens_of(1, good + 9)), "no event")
        await world.until(slot, tokens_of(1, good + 9), 1)
        assert len(lines(caplog)) == told + (good == 5)


async def test_a_batch_that_breaks_us_is_one_line_and_the_next_one_counts(
    world: World, noise: Noise, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours is shown once with its place; the stream goes on."""

    def broken(payload: bytes) -> object:
        if payload == b"bad":
            raise ZeroDivisionError
        return parts(payload)

    monkeypatch.setattr(intake_module, "parts", broken)
    slot = await listening(world, noise)
    for _ in range(20):
        noise.payload(b"bad")
    noise.batch(stored(tokens_of(2)))
    await world.until(slot, tokens_of(2), 2)
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    assert world.feed.counters["w"].malformed == 20


async def test_spoiled_batches_never_make_a_wrong_hit(world: World, noise: Noise) -> None:
    """Of half-written, cut and changed batches nothing is believed that does not add up."""
    dice = random.Random(11)
    slot = await listening(world, noise)
    true, raw = tokens_of(4, 1), msgspec.msgpack.encode([0.0, [stored(tokens_of(4))], 0])
    for _ in range(500):
        noise.payload(raw[: dice.randrange(len(raw))])
    noise.batch(stored(true))
    await world.until(slot, true, 4)
    assert (len(slot), world.hits(slot, tokens_of(4))) == (4, 0)
    assert world.feed.counters["w"].malformed == 500


# ── absurd sizes ─────────────────────────────────────────────────────────────────────────────────────
async def test_a_payload_beyond_all_measure_is_not_looked_at(
    world: World, noise: Noise, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch that would be good but for its padding: counted, told once, no hit; the next one counts."""
    slot = await listening(world, noise)
    padded = msgspec.msgpack.encode([0.0, [stored(tokens_of(2))], 0, bytes(MAX_PAYLOAD)])
    noise.say(b"kv-events", padded)
    noise.batch(stored(tokens_of(3, 1)))
    await world.until(slot, tokens_of(3, 1), 3, within=30)
    assert (world.hits(slot, tokens_of(2)), world.feed.counters["w"].malformed) == (0, 1)
    (line,) = lines(caplog)
    assert f"a message of 2 frames, {len(padded) + 9} bytes" in line


@pytest.mark.parametrize("absurd", [
    {"block_size": 1 << 62}, {"block_size": (1 << 64) - 1}, {"block_size": 1 << 62, "token_ids": []},
    {"block_hashes": [(1 << 64) - 1]}, {"token_ids": [1 << 60] * SIZE * 2}, {"group_idx": 1 << 62},
    {"parent_block_hash": 1 << 63}, {"block_hashes": []}, {"block_size": -1}, {"extra_keys": [["x"]] * 10_000},
])  # fmt: skip
async def test_absurd_numbers_in_an_event_are_survived(world: World, noise: Noise, absurd: dict[str, object]) -> None:
    """Whatever becomes of it, the stream goes on, and nobody holds the prompt for it."""
    slot = await listening(world, noise)
    noise.batch(stored(tokens_of(2), **absurd))
    noise.batch({"type": "AllBlocksCleared"}, stored(tokens_of(3, 1)))
    await world.until(slot, tokens_of(3, 1), 3)
    assert len(slot) == 3


@pytest.mark.parametrize("size", [1 << 30, 1 << 40, (1 << 64) - 1])
async def test_a_message_announced_with_an_absurd_length_is_cut_off(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """The connection ends before anything of it is held; it is told and counted, and the stream followed again."""
    monkeypatch.setattr(zmq_module, "GIVEN_UP", 0.1)
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        slot = world.add("w", None, kv_events_endpoint=f"tcp://127.0.0.1:{server.getsockname()[1]}")
        for _ in range(2):
            peer = await greeted(server)
            with peer:
                await loop.sock_sendall(peer, b"\x02" + struct.pack(">Q", size) + b"x")
                while await asyncio.wait_for(loop.sock_recv(peer, 4096), 10):
                    pass
        with await greeted(server) as peer:
            payload = msgspec.msgpack.encode([0.0, [stored(tokens_of(1))], 0])
            await loop.sock_sendall(peer, b"\x01\x00\x02" + struct.pack(">Q", len(payload)) + payload)
            await world.until(slot, tokens_of(1), 1)
    (line,) = lines(caplog)
    assert "far too long" in line
    assert world.feed.counters["w"].malformed == 2


async def greeted(server: socket.socket) -> socket.socket:
    """A subscriber that took us for a publisher of ZMTP 3.0."""
    loop = asyncio.get_running_loop()
    peer, _ = await asyncio.wait_for(loop.sock_accept(server), 10)
    await loop.sock_sendall(peer, b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48))
    ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 3) + b"PUB"
    await loop.sock_sendall(peer, b"\x04" + bytes([len(ready)]) + ready)
    said = b""
    while not said.endswith(b"\x00\x01\x01"):  # it wants everything
        said += await asyncio.wait_for(loop.sock_recv(peer, 4096), 10)
    return peer


async def test_a_publisher_where_something_else_was_is_followed(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A socket of another kind is told of and does not end the search: later a publisher has its address."""
    monkeypatch.setattr(zmq_module, "GIVEN_UP", 0.05)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    other = context.socket(zmq.REP)
    port = other.bind_to_random_port("tcp://127.0.0.1")
    where = f"tcp://127.0.0.1:{port}"
    slot = world.add("w", None, kv_events_endpoint=where)
    async with asyncio.timeout(10):
        while world.feed.counters.get("w", FeedCounters()).malformed < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    context.destroy(linger=0)
    assert len(lines(caplog)) == 1
    later = Noise(where)
    await later.heard()
    later.batch(stored(tokens_of(2)))
    await world.until(slot, tokens_of(2), 2)
    later.close()


# ── clocks that jump ─────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("ts", [0.0, -1e18, 1e308, float("nan"), float("inf"), 1 << 63, "yesterday", None])
async def test_the_time_that_an_engine_gives_changes_nothing(world: World, noise: Noise, ts: object) -> None:
    """Batches of yesterday, of the end of time and of no time at all count alike, in the order of their numbers."""
    slot = await listening(world, noise)
    noise.batch(stored(tokens_of(2)), ts=4e9)
    noise.batch(stored(tokens_of(3, 1)), ts=ts)
    noise.batch({"type": "BlockRemoved", "block_hashes": stored(tokens_of(2))["block_hashes"]}, ts=1.0)
    await world.until(slot, tokens_of(3, 1), 3)
    await world.until(slot, tokens_of(2), 0)
    assert world.feed.counters["w"].malformed == 0


async def test_a_jump_of_our_clock_changes_nothing(
    world: World, noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten years ahead and back again: what is known stays known, and was heard in the order in which it came."""
    slot = await listening(world, noise)
    heard = []
    for number, year in enumerate((2036, 1999, 2026)):
        monkeypatch.setattr(time, "time", lambda year=year: (year - 1970) * 31_557_600.0)
        noise.batch(stored(tokens_of(2, number)))
        await world.until(slot, tokens_of(2, number), 2)
        world.feed.tick(time.monotonic())
        heard.append(slot.used)
    assert heard == sorted(heard)
    assert time.monotonic() - heard[0] < 60
    assert len(slot) == 6
