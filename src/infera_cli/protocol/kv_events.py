"""KV events of the engines: frames and msgpack in, values out, by shape alone (engines §1.8, §2.5, §3; C23).

Three encodings are in the field, and a fourth mixes them: arrays (form A), maps in an array (B), maps in a map
(C) (infera-wire §4.8). Whatever cannot be understood is counted, never raised; the other events of a batch
stay good (R085).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

MAX_PAYLOAD = 64 << 20
"""Larger payloads are not looked at, in bytes; the largest honest batch is a few MB."""

_INT_LOW, _INT_HIGH = -(1 << 63), 1 << 64
_ALL_INT = {int}
_ATTENTION = frozenset({"full_attention", "mla_attention", "sink_full_attention"})
_DEVICE = frozenset({"GPU", "DEVICE", "NPU", "XPU", "HBM", "TPU"})

Extra = Sequence[Any] | None
"""What else is part of a block's identity: adapter, salt, images; None where nothing is."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """Blocks that can be found from now on, one hash each; `tokens` are those of all of them.

    Hashes are opaque: unsigned, signed, or the last 8 bytes of a digest. `parent` is None at the beginning of
    a prompt. `extras` has one entry a block where it is given.
    """

    hashes: Sequence[int]
    parent: int | None
    tokens: Sequence[int]
    block_size: int
    adapter: str | None = None
    salt: str | None = None
    extras: Sequence[Extra] | None = None
    group: int | None = None


class Removed(msgspec.Struct, frozen=True, gc=False):
    """One copy of each of these blocks is gone from the device."""

    hashes: Sequence[int]
    group: int | None = None


class Cleared(msgspec.Struct, frozen=True, gc=False):
    """The device holds nothing any more."""


KvEvent = Stored | Removed | Cleared


class Batch(msgspec.Struct, frozen=True, gc=False):
    """What one message says. `skipped` events concern other tiers or groups, or are of an unknown kind;
    `malformed` ones could not be read."""

    events: Sequence[KvEvent]
    rank: int | None = None
    skipped: int = 0
    malformed: int = 0


class Frames(msgspec.Struct, frozen=True, gc=False):
    """A message taken apart; `seq` is None where the engine does not number its batches."""

    seq: int | None
    payload: bytes


BROKEN = Batch((), malformed=1)
END = -1
"""The sequence number that ends a replay."""


# ── frames ───────────────────────────────────────────────────────────────────────────────────────────
def read_frames(frames: Sequence[bytes]) -> Frames | None:
    """A live message: payload; topic, payload; or topic, number, payload (engines §1.8.2, §3). None: garbage."""
    if not 1 <= len(frames) <= 3 or len(frames[-1]) > MAX_PAYLOAD:
        return None
    if len(frames) < 3:
        return Frames(None, frames[-1])
    return Frames(int.from_bytes(frames[1], "big"), frames[2]) if len(frames[1]) == 8 else None


def read_replayed(frames: Sequence[bytes]) -> Frames | None:
    """A reply to a replay request, as a DEALER sees it: empty, [topic,] number, payload; `seq` END at the end."""
    if not 3 <= len(frames) <= 4 or len(frames[-2]) != 8 or len(frames[-1]) > MAX_PAYLOAD:
        return None
    return Frames(int.from_bytes(frames[-2], "big", signed=True), frames[-1])


def replay_request(start: int) -> list[bytes]:
    """The frames that ask for everything from number `start` on (engines §1.8.6)."""
    return [b"", start.to_bytes(8, "big")]


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────
def decode(payload: bytes) -> Batch:
    """The batch in `payload`; BROKEN when it is none."""
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
    if not isinstance(raw, list):
        return BROKEN
    return _events(raw, rank if _is_int(rank) else None)


def _events(raw: list[Any], rank: int | None) -> Batch:
    events: list[KvEvent] = []
    skipped = malformed = 0
    for item in raw:
        try:
            event = _event(item)
        except (ValueError, TypeError, IndexError):
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


def _stored(members: Mapping[str, Any]) -> Stored | None:
    kind = members.get("kv_cache_spec_kind")
    if not _on_device(members) or (kind is not None and kind not in _ATTENTION):
        return None
    hashes = _hashes(members["block_hashes"])
    parent = members.get("parent_block_hash")
    size = members["block_size"]
    tokens = members["token_ids"]
    if not (_is_int(size) and size > 0 and isinstance(tokens, list)):
        raise ValueError("no block size, or no tokens")
    if tokens and isinstance(tokens[0], list):  # pairs of speculative decoding (engines §2.5)
        tokens = [pair[0] for pair in tokens]
    return Stored(
        hashes, None if parent is None else _hash(parent), tokens, size, adapter=_adapter(members),
        salt=_text(members, "cache_salt"), extras=_extras(members.get("extra_keys")), group=_group(members),
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
    medium, locality = members.get("medium"), members.get("locality")
    return (medium is None or (isinstance(medium, str) and medium.upper() in _DEVICE)) and locality != "REMOTE"


def _adapter(members: Mapping[str, Any]) -> str | None:
    name = _text(members, "lora_name")
    number = members.get("lora_id")
    if name is None and isinstance(number, int) and number > 0:  # an adapter that nobody can name
        return f"#{number}"
    return name


def _text(members: Mapping[str, Any], key: str) -> str | None:
    value = members.get(key)
    return value if isinstance(value, str) and value else None


def _group(members: Mapping[str, Any]) -> int | None:
    group = members.get("group_idx")
    return group if _is_int(group) else None


def _extras(raw: Any) -> list[Extra] | None:
    if not isinstance(raw, list) or not any(raw):
        return None
    return [entry if isinstance(entry, list) and entry else None for entry in raw]


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
