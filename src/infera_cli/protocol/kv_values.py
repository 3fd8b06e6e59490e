"""What KV events say, as plain values, whatever they looked like on the wire (engines §1.8.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

Extra = Sequence[Any] | None
"""What else is part of a block's identity: adapter, salt, images; None where nothing is."""

ATTENTION = frozenset({"full_attention", "mla_attention", "sink_full_attention"})
"""Groups whose blocks stand for a prefix (S61)."""
_DEVICE = frozenset({"GPU", "DEVICE", "NPU", "XPU", "HBM", "TPU"})


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


def on_device(medium: object, locality: object) -> bool:
    """Whether an event is about the memory that counts; an engine that says nothing means that (C28)."""
    return (medium is None or (isinstance(medium, str) and medium.upper() in _DEVICE)) and locality != "REMOTE"


def adapter_of(name: str | None, number: object) -> str | None:
    """The adapter, by its name, or by the number of one that nobody can name."""
    if name is None and isinstance(number, int) and number > 0:
        return f"#{number}"
    return name


def extras_of(raw: Sequence[Any] | None) -> list[Extra] | None:
    """An entry a block; None where no block has any."""
    if raw is None or not any(raw):
        return None
    return [entry if isinstance(entry, list) and entry else None for entry in raw]
