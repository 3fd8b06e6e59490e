"""KV events of the engines: frames and msgpack in, values out, by shape alone (engines §1.8, §2.5, §3; C23).

Three encodings are in the field, and a fourth mixes them: arrays (form A), maps in an array (B), maps in a map
(C) (infera-wire §4.8). Whatever cannot be understood is counted, never raised; the other events of a batch
stay good (R085).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from infera_cli.protocol import kv_large
from infera_cli.protocol.kv_usual import decode_usual
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

__all__ = [
    "BROKEN", "END", "MAX_PAYLOAD", "Batch", "Cleared", "Frames", "KvEvent", "Removed", "Stored", "decode",
    "parts", "read_frames", "read_replayed", "replay_request",
]  # fmt: skip

MAX_PAYLOAD = 16 << 20
"""Larger payloads are not looked at, in bytes; 60,000 blocks of 16 tokens in one batch are 6 MB."""
BAD_MOST = 100
"""Events of a batch that may be unreadable; with more the rest of it is not looked at."""

_INT_LOW, _INT_HIGH = -(1 << 63), 1 << 64
_TOKENS = 1 << 32
_ALL_INT = {int}
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError)


class Frames(msgspec.Struct, frozen=True, gc=False):
    """A message taken apart; `seq` is None where the engine does not number its batches."""

    seq: int | None
    payload: bytes


BROKEN = Batch((), malformed=1)
END = -1
"""The sequence number that ends a replay."""
_NUMBERS = 1 << 48
"""Numbers begin at 0 with each process; a million batches a second take nine years to get here."""


# ── frames ───────────────────────────────────────────────────────────────────────────────────────────
def read_frames(frames: Sequence[bytes]) -> Frames | None:
    """A live message: payload; topic, payload; or topic, number, payload (engines §1.8.2, §3). None: garbage."""
    if not 1 <= len(frames) <= 3 or len(frames[-1]) > MAX_PAYLOAD:
        return None
    if len(frames) < 3:
        return Frames(None, frames[-1])
    seq = int.from_bytes(frames[1], "big")
    return Frames(seq, frames[2]) if len(frames[1]) == 8 and seq < _NUMBERS else None


def read_replayed(frames: Sequence[bytes]) -> Frames | None:
    """A reply to a replay request, as a DEALER sees it: empty, [topic,] number, payload; `seq` END at the end."""
    if not 3 <= len(frames) <= 4 or len(frames[-2]) != 8 or len(frames[-1]) > MAX_PAYLOAD:
        return None
    seq = int.from_bytes(frames[-2], "big", signed=True)
    return Frames(seq, frames[-1]) if END <= seq < _NUMBERS else None


def replay_request(start: int) -> list[bytes]:
    """The frames that ask for everything from number `start` on (engines §1.8.6)."""
    return [b"", start.to_bytes(8, "big")]


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────
def parts(payload: bytes) -> Iterator[Batch]:
    """The batch in `payload`, in as many as it takes to read none of them for long; BROKEN when it is none."""
    if len(payload) <= kv_large.AT_ONCE:
        yield _decode(payload)
        return
    found = kv_large.cut(payload)
    if found is None:
        yield BROKEN
        return
    yield Batch(())  # to cut it took a while already
    bad = 0
    for part in found:
        batch = _decode(part) if isinstance(part, bytes) else _large(part)
        yield batch
        bad += batch.malformed
        if bad > BAD_MOST:
            return


def decode(payload: bytes) -> Batch:
    """The batch in `payload` as a whole; BROKEN when it is none."""
    found = list(parts(payload))
    if len(found) == 1:
        return found[0]
    return Batch(
        [event for batch in found for event in batch.events], found[-1].rank,
        sum(batch.skipped for batch in found), sum(batch.malformed for batch in found),
    )  # fmt: skip


def _decode(payload: bytes) -> Batch:
    usual = decode_usual(payload)
    return usual if usual is not None else _by_shape(payload)


def _large(part: msgspec.Raw) -> Batch:
    try:
        tag, members = kv_large.large_event(part)
        event = _stored(members, checked=True) if tag == "BlockStored" else _removed(members)
    except _MALFORMED:
        return BROKEN
    return Batch((), skipped=1) if event is None else Batch((event,))


def _by_shape(payload: bytes) -> Batch:
    try:
        found = msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError):
        return BROKEN
    if isinstance(found, dict):
        raw, rank = found.get("events"), found.get("data_parallel_rank")
    elif isinstance(found, list) and len(found) >= 2:
        raw, rank = found[1], found[2] if len(found) > 2 else None
    else:
        return BROKEN
    if not isinstance(raw, list) or kv_large.too_many(len(raw), len(payload)):
        return BROKEN
    return _events(raw, rank if _is_int(rank) else None)


def _events(raw: list[Any], rank: int | None) -> Batch:
    events: list[KvEvent] = []
    skipped = malformed = 0
    for item in raw:
        try:
            event = _event(item)
        except _MALFORMED:
            malformed += 1
            continue
        if event is None:
            skipped += 1
        else:
            events.append(event)
    return Batch(events, rank, skipped, malformed)


def _event(item: Any) -> KvEvent | None:
    """One event, None for those that say nothing about the device. Raises ValueError and its like."""
    if isinstance(item, list):
        tag, fields = item[0], item[1:]
        names = _ORDER.get(tag)
        if names is None:
            return None
        members: Mapping[str, Any] = dict(zip(names, fields, strict=False))
    elif isinstance(item, dict):
        tag, members = item["type"] if "type" in item else item.get("event_type"), item
    else:
        raise ValueError("no event")  # noqa: TRY004 - one family for all that is malformed
    make = _MAKE.get(tag)
    return make(members) if make is not None else None


_STORED = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
    "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
)  # fmt: skip
_ORDER: dict[Any, tuple[str, ...]] = {
    "BlockStored": _STORED,
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": ("medium",),
    "BlockTransferred": ("block_hashes", "medium", "to_medium", "group_idx"),
}


def _stored(members: Mapping[str, Any], *, checked: bool = False) -> Stored | None:
    kind = members.get("kv_cache_spec_kind")
    if not _on_device(members) or (kind is not None and kind not in ATTENTION):
        return None
    hashes = _hashes(members["block_hashes"])
    parent = members.get("parent_block_hash")
    size = members["block_size"]
    tokens = members["token_ids"]
    if not (_is_int(size) and size > 0 and isinstance(tokens, list)):
        raise ValueError("no block size, or no tokens")
    if tokens and isinstance(tokens[0], list):  # pairs of speculative decoding (engines §2.5)
        tokens = [pair[0] for pair in tokens]
    if tokens and not checked and not 0 <= min(tokens) <= max(tokens) < _TOKENS:
        raise ValueError("no token ids")
    extras = members.get("extra_keys")
    return Stored(
        hashes, None if parent is None else _hash(parent), tokens, size,
        adapter=adapter_of(_text(members, "lora_name"), members.get("lora_id")), salt=_text(members, "cache_salt"),
        extras=extras_of(extras if isinstance(extras, list) else None), group=_group(members),
    )  # fmt: skip


def _removed(members: Mapping[str, Any]) -> Removed | None:
    return Removed(_hashes(members["block_hashes"]), _group(members)) if _on_device(members) else None


def _cleared(members: Mapping[str, Any]) -> Cleared | None:
    return Cleared() if _on_device(members) else None


_MAKE: dict[Any, Callable[[Mapping[str, Any]], KvEvent | None]] = {
    "BlockStored": _stored,
    "BlockRemoved": _removed,
    "AllBlocksCleared": _cleared,
    "BlockTransferred": _removed,  # what left the device may be gone; to think so costs a hit at most
}


def _on_device(members: Mapping[str, Any]) -> bool:
    return on_device(members.get("medium"), members.get("locality"))


def _text(members: Mapping[str, Any], key: str) -> str | None:
    value = members.get(key)
    return value if isinstance(value, str) and value else None


def _group(members: Mapping[str, Any]) -> int | None:
    group = members.get("group_idx")
    return group if _is_int(group) else None


def _hashes(raw: Any) -> list[int]:
    if not isinstance(raw, list):
        raise ValueError("no list of hashes")  # noqa: TRY004
    if set(map(type, raw)) == _ALL_INT:
        return raw
    return [_hash(item) for item in raw]


def _hash(raw: Any) -> int:
    if isinstance(raw, bytes) and raw:
        return int.from_bytes(raw[-8:], "big")
    if _is_int(raw) and _INT_LOW <= raw < _INT_HIGH:
        return int(raw)
    raise ValueError("no hash")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
