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


def of_block(
    extra: Sequence[Any], adapter: str | None, salt: str | None = None, *, first: bool
) -> tuple[str | None, list[Any]]:
    """The salt that a block's extra keys tell, and all that is neither the salt nor the adapter's name.

    Keys come in the order adapter, images, salt, with a tag or without; the salt stands at a prompt's `first` block
    alone. `salt` is one that was told beside them.
    """
    texts, rest = [], []
    for key in extra:
        match key:
            case str():
                texts.append(key)
            case ["lora", str(name)] if name == adapter:
                pass
            case ["cache_salt", str(tagged)] if first:
                salt = tagged
            case _:
                rest.append(key)
    if adapter in texts:
        texts.remove(adapter)
    if salt in texts:
        texts.remove(salt)
    elif first and salt is None and texts:
        salt = texts.pop()
    return salt, rest + texts


def mixed_in(parent: int, solid: Sequence[Any]) -> int:
    """`parent` with the images and embeddings of the next block mixed in, so that text alone never matches it."""
    return xxh3_64_intdigest(repr(solid).encode("utf-8", "replace"), seed=parent) if solid else parent
