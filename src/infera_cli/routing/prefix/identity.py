"""What besides tokens makes a block what it is: adapter, salt, images (engines §6.3, §7; C28)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xxhash import xxh3_64_intdigest

from infera_cli.blocks import FIRST_PARENT

_APART = "\0"


def first_parent(adapter: str | None, salt: str | None) -> int:
    """Where the chain of a prompt begins; plain prompts begin at 0, as other routers' do (infera-wire §4.5)."""
    if adapter is None and salt is None:
        return FIRST_PARENT
    return xxh3_64_intdigest(_APART.join(("adapter", adapter or "", "salt", salt or "")).encode("utf-8", "replace"))


def salt_in(extra: Sequence[Any] | None, adapter: str | None) -> str | None:
    """The salt among the extra keys of a prompt's first block: the text that is not the adapter's name."""
    if extra is None:
        return None
    return next((key for key in extra if isinstance(key, str) and key != adapter), None)


def mixed_in(parent: int, extra: Sequence[Any] | None) -> int:
    """`parent` with the images and embeddings of the next block mixed in, so that text alone never matches it."""
    if extra is None:
        return parent
    solid = [key for key in extra if not isinstance(key, str)]
    return xxh3_64_intdigest(repr(solid).encode("utf-8", "replace"), seed=parent) if solid else parent
