"""Batches and events of KV events that are too large to be read in one go: cut first, then read bit by bit.

A byte of msgpack can become an object of sixty, so nothing that comes from outside is decoded into whatever it says
it is without a bound. What is cut out stays bytes; the fields of a large event are read by their types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

AT_ONCE = 64 << 10
"""Bytes that are decoded in one go, whatever they say."""
EVENTS_MOST = 65_536
"""Events in a batch; an engine publishes once a step, of some ten thousand tokens at most."""
EVENT_BYTES = 16
"""An event is never shorter; a batch of more events than fit is refused before they are looked at."""
LARGEST_EVENT = 8 << 20
"""Bytes; 60,000 blocks of 16 tokens are 6 MB."""
_PART_EVENTS = 256
_HASHES_MOST, _TOKENS_MOST = 1 << 20, 1 << 21
_EXTRAS_BYTES, _EXTRAS_LISTS = 2 << 20, 1 << 16
_NIL = Raw(b"\xc0")
_LISTS = bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)])

_Hashes = Annotated[list[int | bytes], Meta(max_length=_HASHES_MOST)]
_Tokens = Annotated[list[Annotated[int, Meta(ge=0, lt=1 << 32)]], Meta(max_length=_TOKENS_MOST)]
_Events = Annotated[list[Raw], Meta(max_length=EVENTS_MOST)]


class _Row(msgspec.Struct, gc=False, array_like=True):
    ts: Raw
    events: _Events
    rank: Raw = _NIL


class _Map(msgspec.Struct, gc=False):
    events: _Events
    rank: Raw = msgspec.field(default=_NIL, name="data_parallel_rank")


class _Stored(msgspec.Struct, gc=False, tag_field="type", tag="BlockStored"):
    """In the order of arrays; what only maps have comes last."""

    block_hashes: _Hashes
    parent_block_hash: int | bytes | None = None
    token_ids: _Tokens = []
    block_size: int = 0
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: Raw = _NIL
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: Raw = _NIL
    cache_salt: str | None = None
    locality: str | None = None


class _Removed(msgspec.Struct, gc=False, tag_field="type", tag="BlockRemoved"):
    block_hashes: _Hashes
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None


class _StoredRow(_Stored, gc=False, array_like=True, tag="BlockStored"):
    pass


class _RemovedRow(_Removed, gc=False, array_like=True, tag="BlockRemoved"):
    pass


_row, _map = msgspec.msgpack.Decoder(_Row).decode, msgspec.msgpack.Decoder(_Map).decode
_event = msgspec.msgpack.Decoder(_Stored | _Removed).decode
_event_row = msgspec.msgpack.Decoder(_StoredRow | _RemovedRow).decode
_FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError)


def is_map(payload: bytes | memoryview) -> bool:
    """Whether msgpack begins with a map."""
    return 0x80 <= payload[0] < 0x90 or payload[0] in (0xDE, 0xDF)


def too_many(events: int, size: int) -> bool:
    """Whether so many events can not be in `size` bytes; a few may be anything."""
    return events > EVENTS_MOST or (events > 64 and events * EVENT_BYTES > size)


def cut(payload: bytes) -> Iterator[bytes | Raw] | None:
    """The batch in batches of about AT_ONCE, and events that are longer by themselves; None where it is none."""
    try:
        found: _Row | _Map = _map(payload) if is_map(payload) else _row(payload)
    except _FAULTS:
        return None
    if too_many(len(found.events), len(payload)):
        return None
    rank = bytes(found.rank) if memoryview(found.rank).nbytes <= 9 else b"\xc0"
    return _parts(found.events, rank)


def _parts(events: list[Raw], rank: bytes) -> Iterator[bytes | Raw]:
    part: list[Raw] = []
    size = 0
    for event in events:
        more = memoryview(event).nbytes
        if part and (size + more > AT_ONCE or len(part) == _PART_EVENTS):
            yield _batch(part, rank)
            part, size = [], 0
        if more > AT_ONCE:
            yield event
            continue
        part.append(event)
        size += more
    if part:
        yield _batch(part, rank)


def _batch(events: list[Raw], rank: bytes) -> bytes:
    return b"\x93\xca\0\0\0\0\xdc" + len(events).to_bytes(2, "big") + b"".join(events) + rank


def large_event(raw: Raw) -> tuple[str, dict[str, Any]]:
    """Kind and members of such an event. Raises ValueError where it is none of the known forms, or absurd."""
    view = memoryview(raw)
    if view.nbytes > LARGEST_EVENT:
        raise ValueError("no event is so large")
    try:
        event = _event(raw) if is_map(view) else _event_row(raw)
        members = msgspec.structs.asdict(event)
        if isinstance(event, _Stored):
            members["extra_keys"] = _extras(memoryview(event.extra_keys))
    except _FAULTS as fault:
        raise ValueError("no event that could be so large") from fault
    return "BlockStored" if isinstance(event, _Stored) else "BlockRemoved", members


def _extras(raw: memoryview) -> Any:
    """As they are where that cannot be many lists: each takes a byte that says so, and other bytes may look like it."""
    if raw.nbytes > AT_ONCE:
        data = bytes(raw)
        if len(data) > _EXTRAS_BYTES or len(data) - len(data.translate(None, _LISTS)) > _EXTRAS_LISTS:
            raise ValueError("too much beside the tokens")
    return msgspec.msgpack.decode(raw)
