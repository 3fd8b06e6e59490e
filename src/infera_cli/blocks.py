"""The block hash chain of infera-wire §4.5: a hash stands for its block and for all before it.

`h(parent, tokens) = XXH3-64(parent as 8 bytes ‖ each token as 4 bytes)`, little-endian, seed 0, first parent
0. Pure. Other routers compute the same numbers, so views can be exchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

FIRST_PARENT = 0


def block_hash(parent: int, tokens: Sequence[int]) -> int:
    """Hash of one block after `parent`. Both are unsigned, 64 and 32 bits; struct.error otherwise."""
    return xxh3_64_intdigest(struct.pack(f"<Q{len(tokens)}I", parent, *tokens))


def chain(tokens: Sequence[int], block_size: int, parent: int = FIRST_PARENT) -> list[int]:
    """Hashes of the full blocks of `tokens`, in order; a partial block at the end has none.

    `block_size` is in tokens, at least 1 (ValueError). `parent` is the last hash of what went before.
    """
    return chain_packed(struct.pack(f"<{len(tokens)}I", *tokens), block_size, parent)


def chain_packed(packed: bytes, block_size: int, parent: int = FIRST_PARENT) -> list[int]:
    """As `chain`, of tokens that are packed already, four bytes each, little-endian."""
    if block_size < 1:
        raise ValueError(f"a block has at least one token, not {block_size}")
    step = 4 * block_size
    hashes = []
    for start in range(0, len(packed) - step + 1, step):
        parent = xxh3_64_intdigest(parent.to_bytes(8, "little") + packed[start : start + step])
        hashes.append(parent)
    return hashes


def reference_hash(reference: str) -> int:
    """Hash of an image reference, as text (infera-wire §4.7)."""
    return xxh3_64_intdigest(reference.encode())
