"""What a request asks of a node: estimated tokens, and the names of its prefixes (replica-router §2.5, §2.6).

No tokenizer: four bytes of text count as a token. Each prefix of a conversation has a name, a hash chained over
its messages, so that a later turn, or another agent with the same system prompt, finds the longest one known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Protocol

import msgspec
import xxhash

BYTES_PER_TOKEN = 4
OUTPUT_ASSUMED = 256
OUTPUT_MOST = 4096
PARAMETERS_ASSUMED = 8e9

_BILLIONS = re.compile(r"(\d+(?:\.\d+)?)b(?![a-z0-9])", re.IGNORECASE)


class Message(Protocol):
    """One message of a prompt."""

    @property
    def system(self) -> bool:
        """Whether it is the operator's."""
    @property
    def text(self) -> str:
        """Its text."""
    @property
    def rest(self) -> bytes:
        """What else it holds, as bytes that are equal when it is."""


class Work(msgspec.Struct, gc=False, kw_only=True):
    """One request as cost routing sees it.

    `params` are the model's parameters, `prompt` and `output` estimated tokens. `chain[i]` names the prefix that
    ends with message i, `sizes[i]` is its length in tokens; the first `pinned` of them are system prompts.
    `known` is what the nodes held of it when it was last looked up: worker number → tokens. `roomiest` asks for
    the node with the most free cache, whatever it costs (§2.12).
    """

    params: float = PARAMETERS_ASSUMED
    prompt: int = 1
    output: int = OUTPUT_ASSUMED
    chain: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    pinned: int = 0
    affinity: str | None = None
    priority: int = 5
    known: dict[int, int] = {}
    roomiest: bool = False

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


class Reader:
    """Makes Work of prompts. Lines that match one of `ignore` do not count when prefixes are compared; without
    `chains` prefixes get no names, where nobody asks for them."""

    def __init__(self, ignore: Iterable[str] = (), *, chains: bool = True) -> None:
        self._chains = chains
        rules = [f"(?:{rule})" for rule in ignore]
        self._changing = re.compile(rf"^.*(?:{'|'.join(rules)}).*$\n?", re.MULTILINE) if rules else None

    def work(
        self, model: str | None, messages: Sequence[Message], output: int | None = None, *,
        hint: str | None = None, affinity: str | None = None, priority: int = 5,
    ) -> Work:  # fmt: skip
        """The Work of a request. `hint` stands for the system prompt, whatever that says (kv_prefix_hint)."""
        if not self._chains:
            size = sum([_bytes_of(message.text) for message in messages])
            return Work(params=parameters(model), prompt=max(1, -(-size // BYTES_PER_TOKEN)),
                        output=output_tokens(output), affinity=affinity, priority=priority)
        chain: list[int] = []
        sizes: list[int] = []
        total, name, lead, leading = 0, _scope(model), 0, True
        for message in messages:
            raw = message.text.encode("utf-8", "surrogatepass")
            total += len(raw)
            leading = leading and message.system
            lead += leading
            if hint is None:
                name = self._chained(message, raw, name)
            elif not chain or leading:
                name = xxhash.xxh3_64_intdigest(hint.encode("utf-8", "surrogatepass"), _scope(model) ^ _HINT)
                chain, sizes = [], []
            else:
                name = self._chained(message, raw, name)
            chain.append(name)
            sizes.append(-(-total // BYTES_PER_TOKEN))
        return Work(
            params=parameters(model), prompt=sizes[-1] or 1 if sizes else 1, output=output_tokens(output),
            chain=tuple(chain), sizes=tuple(sizes), pinned=lead if hint is None else min(1, len(chain)),
            affinity=affinity, priority=priority,
        )  # fmt: skip

    def _chained(self, message: Message, raw: bytes, before: int) -> int:
        if self._changing is not None:
            raw = self._changing.sub("", message.text).encode("utf-8", "surrogatepass")
        name: int = xxhash.xxh3_64_intdigest(raw, before ^ _SYSTEM if message.system else before ^ _TURN)
        return xxhash.xxh3_64_intdigest(message.rest, name) if message.rest else name


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


_SYSTEM, _TURN, _HINT = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
"""Tell apart who said the same text."""


@lru_cache(maxsize=1024)
def _scope(model: str | None) -> int:
    return xxhash.xxh3_64_intdigest((model or "").encode("utf-8", "surrogatepass"))
