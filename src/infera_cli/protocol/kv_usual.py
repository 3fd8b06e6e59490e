"""KV events in the form that engines publish today, maps in an array with whole numbers for hashes: read in one go.

A typed decoder makes the values without a dictionary for each event, which costs a third of looking at everything by
shape. What has any other form is not read here at all (engines §1.8.3, §2.5).
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from infera_cli.protocol.kv_values import (
    ATTENTION,
    Batch,
    Cleared,
    KvEvent,
    Removed,
    Stored,
    adapter_of,
    extras_of,
    on_device,
)

Token = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class _Stored(msgspec.Struct, gc=False, tag_field="type", tag="BlockStored"):
    block_hashes: list[int]
    token_ids: list[Token]
    block_size: int
    parent_block_hash: int | None = None
    medium: str | None = None
    lora_id: int | None = None
    lora_name: str | None = None
    cache_salt: str | None = None
    extra_keys: list[Any] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    locality: str | None = None


class _Removed(msgspec.Struct, gc=False, tag_field="type", tag="BlockRemoved"):
    block_hashes: list[int]
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None


class _Cleared(msgspec.Struct, gc=False, tag_field="type", tag="AllBlocksCleared"):
    medium: str | None = None
    locality: str | None = None


class _Batch(msgspec.Struct, gc=False, array_like=True):
    ts: float
    events: list[_Stored | _Removed | _Cleared]
    rank: int | None = None


_decode = msgspec.msgpack.Decoder(_Batch).decode
_OTHERWISE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError)


def decode_usual(payload: bytes) -> Batch | None:
    """The batch in `payload`; None where anything in it has another form, and must be looked at by shape."""
    try:
        found = _decode(payload)
    except _OTHERWISE:
        return None
    events: list[KvEvent] = []
    skipped = 0
    for event in found.events:
        if (event.medium != "GPU" and not on_device(event.medium, None)) or event.locality == "REMOTE":
            skipped += 1
        elif type(event) is _Stored:
            if event.block_size <= 0:
                return None
            if event.kv_cache_spec_kind in ATTENTION or event.kv_cache_spec_kind is None:
                events.append(_stored(event))
            else:
                skipped += 1
        elif type(event) is _Removed:
            events.append(Removed(event.block_hashes, event.group_idx))
        else:
            events.append(Cleared())
    return Batch(events, found.rank, skipped)


def _stored(event: _Stored) -> Stored:
    adapter = event.lora_name or None
    if event.lora_id:
        adapter = adapter_of(adapter, event.lora_id)
    return Stored(
        event.block_hashes, event.parent_block_hash, event.token_ids, event.block_size, adapter,
        event.cache_salt or None, extras_of(event.extra_keys), event.group_idx,
    )  # fmt: skip
