"""Frames and batches of KV events, real ones and bad ones (engines §1.8; C23, R085, S58, S59)."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infera_cli.protocol.kv_events import (
    BROKEN,
    END,
    MAX_PAYLOAD,
    Cleared,
    Removed,
    Stored,
    decode,
    read_frames,
    read_replayed,
    replay_request,
)
from tests.fixtures.kv_events.recorded import Recording

STORED = {
    "type": "BlockStored", "block_hashes": [11, 12], "parent_block_hash": None, "token_ids": [1, 2, 3, 4],
    "block_size": 2, "lora_id": None, "medium": "GPU",
}  # fmt: skip
MARK = "a mark"
ORDER = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
    "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
)  # fmt: skip


def packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def as_array(event: dict[str, Any]) -> list[Any]:
    order = ORDER if event["type"] == "BlockStored" else ("block_hashes", "medium", "group_idx")
    values = [event.get(name) for name in order]
    while values and values[-1] is None:
        values.pop()
    return [event["type"], *values]


@pytest.mark.parametrize("name", ["int", "bytes"])
def test_batches_of_a_real_vllm_are_read(name: str) -> None:
    """Every batch that vLLM published is understood, numbers in a row from zero."""
    recording = Recording(name)
    frames = [read_frames(frames) for frames in recording.frames]
    assert [found.seq for found in frames if found] == list(range(len(recording.frames)))
    batches = [decode(found.payload) for found in frames if found]
    assert sum(batch.malformed + batch.skipped for batch in batches) == 0
    assert {batch.rank for batch in batches} == {0}
    kinds = {type(event) for batch in batches for event in batch.events}
    assert kinds == {Stored, Removed, Cleared}
    for batch in batches:
        for event in batch.events:
            if isinstance(event, Stored):
                assert len(event.tokens) == len(event.hashes) * event.block_size == len(event.hashes) * 32


def test_integer_and_byte_hashes_are_the_same_numbers() -> None:
    """A hash in bytes is known by its last eight, which is what vLLM publishes as an integer."""
    runs = []
    for name in ("int", "bytes"):
        batches = [decode(frames[-1]) for frames in Recording(name).frames]
        runs.append([event.hashes for batch in batches for event in batch.events if isinstance(event, Stored)])
    assert runs[0][:4] == runs[1][:4]


def test_a_salt_is_seen_in_real_events() -> None:
    """The request with `cache_salt` has it among the extra keys of its first block."""
    batches = [decode(frames[-1]) for frames in Recording("int").frames]
    extras = [event.extras for batch in batches for event in batch.events if isinstance(event, Stored) and event.extras]
    assert any(extra[0] and "s1" in extra[0] for extra in extras)


@pytest.mark.parametrize("form", ["arrays", "maps", "a map"])
def test_c23_s58_s59_all_forms_say_the_same(form: str) -> None:
    """Arrays, maps in an array, and maps in a map are told apart by shape, whatever the engine."""
    removed = {"type": "BlockRemoved", "block_hashes": [11], "medium": "GPU"}
    events: list[Any] = [STORED, removed]
    if form == "arrays":
        events = [as_array(STORED), as_array(removed), ["AllBlocksCleared"]]
    else:
        events = [*events, {"type": "AllBlocksCleared"}]
    batch: Any = {"ts": 1.0, "events": events, "data_parallel_rank": 3} if form == "a map" else [1.0, events, 3]
    found = decode(packed(batch))
    assert found.events == [Stored([11, 12], None, [1, 2, 3, 4], 2), Removed([11]), Cleared()]
    assert (found.rank, found.skipped, found.malformed) == (3, 0, 0)


def test_real_batches_as_arrays_say_the_same() -> None:
    """The recorded events, written the old way, are read as the same values."""
    for frames in Recording("int").frames:
        ts, events, rank = msgspec.msgpack.decode(frames[-1])
        old = [as_array(event) for event in events]
        assert decode(packed([ts, old, rank])).events == decode(frames[-1]).events


def test_old_short_arrays_are_read() -> None:
    """Trailing fields that an older engine does not know may be missing, and the rank too."""
    found = decode(packed([1.0, [["BlockStored", [1], None, [5, 6], 2, None], ["BlockRemoved", [1]]]]))
    assert found.events == [Stored([1], None, [5, 6], 2), Removed([1])]
    assert found.rank is None


def test_signed_hashes_and_pairs_of_tokens_are_read() -> None:
    """SGLang's signed hashes stay as they are, and of EAGLE's token pairs the first counts."""
    event = {**STORED, "block_hashes": [-5], "token_ids": [[1, 2], [2, 3]], "parent_block_hash": -9}
    assert decode(packed([1.0, [event], 0])).events == [Stored([-5], -9, [1, 2], 2)]


@pytest.mark.parametrize(
    "change",
    [{"medium": "CPU"}, {"medium": "CPU_PINNED"}, {"medium": "DISK"}, {"locality": "REMOTE"},
     {"kv_cache_spec_kind": "mamba"}, {"kv_cache_spec_kind": "sliding_window"}, {"type": "BlockDreamt"}],
)  # fmt: skip
def test_c28_other_tiers_groups_and_kinds_are_skipped(change: dict[str, Any]) -> None:
    """Only attention blocks on the device are hits; the rest is counted and harms nobody."""
    found = decode(packed([1.0, [{**STORED, **change}, STORED], 0]))
    assert (len(found.events), found.skipped) == (1, 1)


@pytest.mark.parametrize("kind", ["full_attention", "mla_attention", "sink_full_attention"])
def test_s61_every_full_attention_counts(kind: str) -> None:
    """MLA models announce their blocks as another kind of full attention."""
    assert len(decode(packed([1.0, [{**STORED, "kv_cache_spec_kind": kind}], 0])).events) == 1


@pytest.mark.parametrize(
    "bad",
    [{"block_hashes": None}, {"block_hashes": [None]}, {"block_hashes": [1 << 63, "x"]}, {"block_size": 0},
     {"block_size": "16"}, {"token_ids": 7}, {"parent_block_hash": [1]}, {"token_ids": [[]]}],
)  # fmt: skip
def test_r085_one_bad_event_costs_nobody_else(bad: dict[str, Any]) -> None:
    """An undecodable event in the middle is counted; the others of its batch are applied."""
    found = decode(packed([1.0, [STORED, {**STORED, **bad}, "nothing", 5, STORED], 0]))
    assert len(found.events) == 2
    assert found.malformed == 3


def test_events_without_tokens_are_events_still() -> None:
    """A stored event of the CPU tier with no tokens is skipped, not malformed."""
    found = decode(packed([1.0, [{**STORED, "medium": "CPU", "token_ids": []}], 0]))
    assert (found.skipped, found.malformed) == (1, 0)


@given(st.binary(max_size=200))
def test_garbage_is_never_more_than_garbage(payload: bytes) -> None:
    """Whatever bytes come, decoding returns and counts."""
    assert isinstance(decode(payload).malformed, int)


def test_spoiled_real_payloads_are_survived() -> None:
    """Real payloads with bytes changed, cut or repeated never raise."""
    dice = random.Random(3)
    payloads = [frames[-1] for frames in Recording("bytes").frames]
    for _ in range(3000):
        raw = bytearray(dice.choice(payloads))
        for _ in range(dice.randrange(1, 6)):
            raw[dice.randrange(len(raw))] = dice.randrange(256)
        decode(bytes(raw[: dice.randrange(len(raw) + 1)]))
    assert decode(b"\xc1") == BROKEN


def test_absurd_nesting_and_numbers_are_refused() -> None:
    """Depth and sizes made to hurt are garbage."""
    assert decode(b"\x91" * 100_000).malformed == 1
    assert decode(b"\xdd\xff\xff\xff\xff").malformed == 1
    assert decode(packed(7)) == BROKEN
    assert decode(packed([1.0, "x"])) == BROKEN


@pytest.mark.parametrize("claim", [b"\xdd", b"\xdf", b"\xc6", b"\xdb", b"\xc9"])
@pytest.mark.parametrize("member", ["token_ids", "block_hashes", "extra_keys", "lora_name", "unknown"])
def test_absurd_counts_in_a_small_payload_take_no_room(claim: bytes, member: str) -> None:
    """Four billion elements of a list, map, text or bytes that are not there: garbage, at once, and nothing is held."""
    event = {**STORED, member: MARK}
    for batch in ([1.0, [STORED, event], 0], {"ts": 1.0, "events": [STORED, event]}):
        payload = packed(batch)
        assert payload.count(packed(MARK)) == 1
        tracemalloc.start()
        try:
            found = decode(payload.replace(packed(MARK), claim + b"\xff\xff\xff\xff"))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (found, most < 1 << 20) == (BROKEN, True)


@pytest.mark.parametrize("where", ["batch", "events"])
def test_absurd_counts_of_events_take_no_room(where: str) -> None:
    """A batch of four billion members, and one of four billion events."""
    head = b"\xdd\xff\xff\xff\xff"
    body = packed(STORED) * 3
    assert decode(head + body if where == "batch" else b"\x93" + packed(1.0) + head + body) == BROKEN


def test_payloads_beyond_the_limit_are_no_messages() -> None:
    """At the limit they are looked at, a byte beyond it not, live or replayed."""
    most, number = bytes(MAX_PAYLOAD), bytes(8)
    for frames in ([most], [b"t", most], [b"t", number, most]):
        assert read_frames(frames) is not None
        assert read_frames([*frames[:-1], most + b"x"]) is None
    for frames in ([b"", number, most], [b"", b"t", number, most]):
        assert read_replayed(frames) is not None
        assert read_replayed([*frames[:-1], most + b"x"]) is None


def test_frames_are_told_by_their_number() -> None:
    """One, two or three frames; the last is the payload, a number has eight bytes."""
    assert read_frames([b"p"]) is not None
    two, three = read_frames([b"t", b"p"]), read_frames([b"t", (7).to_bytes(8, "big"), b"p"])
    assert two is not None
    assert three is not None
    assert (two.seq, two.payload, three.seq, three.payload) == (None, b"p", 7, b"p")
    assert read_frames([]) is None
    assert read_frames([b"t", b"short", b"p"]) is None
    assert read_frames([b"a", b"b", b"c", b"d"]) is None


def test_replay_frames_of_both_ages_are_read() -> None:
    """Newer engines answer with the topic, older without; the end is the number −1."""
    recording = Recording("int")
    first, end = read_replayed(recording.first_replayed), read_replayed(recording.replay_end)
    assert first is not None
    assert end is not None
    assert (first.seq, first.payload, end.seq) == (0, recording.frames[0][-1], END)
    old = read_replayed([b"", b"\xff" * 8, b""])
    assert old is not None
    assert old.seq == END
    assert read_replayed([b"", b"x"]) is None
    assert replay_request(5) == [b"", b"\0\0\0\0\0\0\0\x05"]


@pytest.mark.parametrize("item", [
    ["BlockStored", [1]], {"type": "BlockStored"}, {"type": "BlockRemoved"}, ["BlockRemoved"], [],
    {"type": "BlockStored", "block_hashes": [1], "token_ids": [[1], {}], "block_size": 16},
])  # fmt: skip
def test_r085_an_event_that_lacks_members_is_counted(item: Any) -> None:
    """It is never raised, in a list or in a map, and the event after it is good."""
    good = {"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU"}
    for payload in ([0.0, [item, good]], {"ts": 0.0, "events": [item, good]}):
        batch = decode(msgspec.msgpack.encode(payload))
        assert batch.malformed + batch.skipped == 1
        assert len(batch.events) == 1
