"""Batches of many megabytes: real ones are read whole, absurd ones are refused before they cost anything."""

from __future__ import annotations

import gc
import struct
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from infera_cli.protocol import kv_events
from infera_cli.protocol.kv_events import BAD_MOST, Batch, Cleared, Removed, Stored, decode, parts

NOTHING = b"\x90"


def packed(*events: Any) -> bytes:
    return msgspec.msgpack.encode([1.0, list(events), 3])


def event(form: str, blocks: int, size: int = 16, hashes: Any = None, **more: Any) -> Any:
    hashes = hashes if hashes is not None else list(range(1 << 63, (1 << 63) + blocks))
    tokens = list(range(100_000, 100_000 + blocks * size))
    if form == "map":
        return {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None, "token_ids": tokens,
                "block_size": size, "lora_id": None, "medium": "GPU", "group_idx": 0, **more}  # fmt: skip
    extras = more.get("extra_keys")
    return ["BlockStored", hashes, None, tokens, size, None, "GPU", None, extras, 0, "full_attention", None]


def slowest(payload: bytes) -> tuple[float, list[Batch]]:
    """CPU seconds of the part that took longest, and all of them; other tests' objects are nobody's to look at."""
    worst = 0.0
    found: list[Batch] = []
    gc.freeze()
    each: Iterator[Batch] = parts(payload)
    while True:
        before = time.process_time()
        batch = next(each, None)
        worst = max(worst, time.process_time() - before)
        if batch is None:
            gc.unfreeze()
            return worst, found
        found.append(batch)


# ── real ones ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("form", ["map", "array"])
@pytest.mark.parametrize("kind", ["int", "bytes"])
def test_sixty_thousand_blocks_in_one_event(form: str, kind: str) -> None:
    """As an engine tells that loaded a long prompt; salts and images are kept."""
    count = 60_000
    hashes = [bytes(24) + number.to_bytes(8, "big") for number in range(count)] if kind == "bytes" else None
    extras = [["salt"], *[None] * (count - 1)]
    (found,) = decode(packed(event(form, count, hashes=hashes, extra_keys=extras))).events
    assert isinstance(found, Stored)
    assert (len(found.hashes), len(found.tokens), found.block_size, found.group) == (count, count * 16, 16, 0)
    assert found.extras is not None
    assert found.extras[:2] == [["salt"], None]
    assert found.hashes[1] == (1 if kind == "bytes" else (1 << 63) + 1)


@pytest.mark.parametrize("form", ["map", "array"])
def test_thousands_of_events_in_one_batch(form: str) -> None:
    """Page by page, with a removal of a whole node and a clear in between: in order, and cut for the loop's sake."""
    pages = [event(form, 1, hashes=[number]) for number in range(1, 30_001)]
    removed = {"type": "BlockRemoved", "block_hashes": list(range(1, 30_001)), "medium": "GPU"}
    payload = packed(*pages, removed, {"type": "AllBlocksCleared"}, {"type": "Unheard"}, "no event")
    worst, found = slowest(payload)
    whole = decode(payload)
    assert [one.hashes[0] for one in whole.events[:-2] if isinstance(one, Stored)] == list(range(1, 30_001))
    assert whole.events[-2:] == [Removed(list(range(1, 30_001))), Cleared()]
    assert (whole.rank, whole.skipped, whole.malformed) == (3, 1, 1)
    assert len(found) > 20
    assert worst < 0.05


def test_a_large_batch_in_a_map_is_read_too() -> None:
    """Form C."""
    pages = [event("map", 1, hashes=[number]) for number in range(2000)]
    batch = decode(msgspec.msgpack.encode({"ts": 1.0, "events": pages, "data_parallel_rank": 3}))
    assert (len(batch.events), batch.rank, batch.malformed) == (2000, 3, 0)


def test_large_events_of_other_tiers_are_skipped() -> None:
    """As small ones are."""
    batch = decode(packed(event("map", 9000, medium="CPU"), event("map", 9000, kv_cache_spec_kind="mamba")))
    assert (len(batch.events), batch.skipped, batch.malformed) == (0, 2, 0)


def test_images_in_a_large_event_are_kept() -> None:
    """Ten thousand blocks of pictures."""
    extras = [[["a" * 64, number]] for number in range(10_000)]
    (found,) = decode(packed(event("map", 10_000, extra_keys=extras))).events
    assert isinstance(found, Stored)
    assert found.extras == extras


# ── absurd ones ──────────────────────────────────────────────────────────────────────────────────────
def many(count: int, item: bytes = NOTHING) -> bytes:
    return b"\xdd" + struct.pack(">I", count) + item * count


def in_event(**raw: bytes) -> bytes:
    """A batch of one stored event, these members as they are on the wire."""
    members = {"type": b"\xabBlockStored", "block_hashes": b"\x91\x01", "token_ids": b"\x91\x01", "block_size": b"\x01"}
    body = b"".join(msgspec.msgpack.encode(name) + value for name, value in {**members, **raw}.items())
    return b"\x93\x00\x91" + bytes([0x80 + len({**members, **raw})]) + body + b"\x00"


MEGA = 1_000_000
ABSURD = {
    "events that are nothing": b"\x93\x00" + many(15 * MEGA) + b"\x00",
    "the same in a map": b"\x82\xa6events" + many(15 * MEGA) + b"\xa2ts\x00",
    "few enough, with padding": b"\x93\x00" + many(60_000) + b"\xc6" + struct.pack(">I", 2 * MEGA) + bytes(2 * MEGA),
    "one event of nothings": b"\x93\x00\x91" + many(15 * MEGA) + b"\x00",
    "a rank of nothings": b"\x93\x00\x90" + many(15 * MEGA),
    "a time of nothings": b"\x93" + many(15 * MEGA) + b"\x90\x00",
    "hashes": in_event(block_hashes=many(15 * MEGA, b"\x01")),
    "hashes of nothing": in_event(block_hashes=many(15 * MEGA)),
    "hashes of one byte": in_event(block_hashes=many(5 * MEGA, b"\xc4\x01x")),
    "tokens": in_event(token_ids=many(15 * MEGA, b"\x01")),
    "pairs": in_event(token_ids=many(5 * MEGA, b"\x92\x01\x01")),
    "extras": in_event(extra_keys=many(15 * MEGA)),
    "extras in one block": in_event(extra_keys=b"\x91" + many(2 * MEGA)),
    "another member": in_event(whatever=many(15 * MEGA)),
    "a medium of nothings": in_event(medium=many(15 * MEGA)),
    "depth": b"\x93\x00" + b"\x91" * (15 * MEGA),
    "maps": b"\x93\x00\x91" + b"\xdf" + struct.pack(">I", 5 * MEGA) + b"\xa1x\x80" * (5 * MEGA) + b"\x00",
}


@pytest.mark.parametrize("kind", list(ABSURD))
def test_absurd_batches_cost_little(kind: str) -> None:
    """Fifteen megabytes that would be gigabytes of objects: refused in less time than anybody notices."""
    payload = ABSURD[kind]
    assert len(payload) <= kv_events.MAX_PAYLOAD
    worst, found = slowest(payload)
    assert worst < 0.1  # 0.05 where nobody else computes
    assert sum(len(batch.events) for batch in found) <= 1
    assert sum(batch.malformed for batch in found) <= 2 * BAD_MOST + 256


def test_small_batches_of_nothings_are_refused_as_a_whole() -> None:
    """No event is so short."""
    assert decode(b"\x93\x00" + many(60_000) + b"\x00") == kv_events.BROKEN


@pytest.mark.parametrize("number", [1 << 48, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_what_never_counted_is_no_number(number: int) -> None:
    """vLLM's end marker and its like are no live batches; the last number that could be is."""
    assert kv_events.read_frames([b"", number.to_bytes(8, "big"), b"x"]) is None
    assert kv_events.read_frames([b"", ((1 << 48) - 1).to_bytes(8, "big"), b"x"]) is not None
    assert kv_events.replay_request(1 << 63)[1] == b"\x80" + bytes(7)


@pytest.mark.parametrize("number", [b"\xff" * 7 + b"\xfe", b"\x7f" + b"\xff" * 7, b"\0\1" + bytes(6)])
def test_what_never_counted_is_no_replayed_number(number: bytes) -> None:
    """Only FF×8 ends a replay, and one absurd number must not make all true ones late."""
    assert kv_events.read_replayed([b"", b"", number, b""]) is None
