"""What a request asks of a node: estimated tokens, and the names of its prefixes (replica-router §2.5, §2.6)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

BYTES_PER_TOKEN = 4
OUTPUT_ASSUMED = 256
OUTPUT_MOST = 4096
PARAMETERS_ASSUMED = 8e9

_BILLIONS = re.compile(r"(\d+(?:\.\d+)?)b(?![a-z0-9])", re.IGNORECASE)


_NOBODY: Final[dict[int, int]] = {}


class Work:
    """One request as cost routing sees it.

    `params` are the model's parameters, `prompt` and `output` estimated tokens. `chain[i]` names the prefix that
    ends with message i, `sizes[i]` is its length in tokens; the first `pinned` of them are system prompts.
    `known` is what the nodes held of it when it was last looked up: worker number → tokens. `roomiest` asks for
    the node with the most free cache, whatever it costs (§2.12).
    """

    __slots__ = (
        "affinity", "chain", "known", "output", "params", "pinned", "priority", "prompt", "roomiest", "sizes",
    )  # fmt: skip

    def __init__(
        self, *, params: float = PARAMETERS_ASSUMED, prompt: int = 1, output: int = OUTPUT_ASSUMED,
        chain: tuple[int, ...] = (), sizes: tuple[int, ...] = (), pinned: int = 0, affinity: str | None = None,
        priority: int = 5, known: dict[int, int] = _NOBODY, roomiest: bool = False,
    ) -> None:  # fmt: skip
        self.params = params
        self.prompt = prompt
        self.output = output
        self.chain = chain
        self.sizes = sizes
        self.pinned = pinned
        self.affinity = affinity
        self.priority = priority
        self.known = known
        self.roomiest = roomiest

    @property
    def tokens(self) -> int:
        """What it holds of a cache once it is done."""
        return self.prompt + self.output


PLAIN = Work()
"""A request that nothing is known of."""


@lru_cache(maxsize=1024)
def parameters(model: str | None) -> float:
    """The size in the model's name: `Llama-3-8B` → 8e9; 8e9 where it has none."""
    found = _BILLIONS.search(model or "")
    return float(found[1]) * 1e9 if found and float(found[1]) > 0 else PARAMETERS_ASSUMED


def output_tokens(wanted: int | None) -> int:
    """How many tokens the answer is taken to have."""
    return OUTPUT_ASSUMED if wanted is None else min(wanted, OUTPUT_MOST)
