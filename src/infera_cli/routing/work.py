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


def tokens_of(text_bytes: int) -> int:
    """Tokens in so many bytes of text, rounded up."""
    return -(-text_bytes // BYTES_PER_TOKEN)


class Reader:
    """Makes Work of prompts. Lines that match one of `ignore` do not count when prefixes are compared."""

    def __init__(self, ignore: Iterable[str] = ()) -> None:
        rules = [f"(?:{rule})" for rule in ignore]
        self._changing = re.compile(rf"^.*(?:{'|'.join(rules)}).*$\n?", re.MULTILINE) if rules else None

    def work(
        self, model: str | None, messages: Sequence[Message], output: int | None = None, *,
        hint: str | None = None, affinity: str | None = None, priority: int = 5,
    ) -> Work:  # fmt: skip
        """The Work of a request. `hint` stands for the system prompt, whatever that says (kv_prefix_hint)."""
        lead = 0
        while lead < len(messages) and messages[lead].system:
            lead += 1
        chain: list[int] = []
        sizes: list[int] = []
        total, name = 0, _scope(model)
        hinted = (lead or 1) if hint is not None else 0
        for place, message in enumerate(messages):
            raw = message.text.encode("utf-8", "surrogatepass")
            total += len(raw)
            if place < hinted - 1:
                continue
            if place == hinted - 1:
                name = xxhash.xxh3_64_intdigest(b"hint\0" + (hint or "").encode("utf-8", "surrogatepass"), name)
            else:
                name = self._chained(message, raw, name)
            chain.append(name)
            sizes.append(tokens_of(total))
        return Work(
            params=parameters(model), prompt=max(1, tokens_of(total)), output=output_tokens(output),
            chain=tuple(chain), sizes=tuple(sizes), pinned=min(1 if hint is not None else lead, len(chain)),
            affinity=affinity, priority=priority,
        )  # fmt: skip

    def _chained(self, message: Message, raw: bytes, before: int) -> int:
        if self._changing is not None:
            raw = self._changing.sub("", message.text).encode("utf-8", "surrogatepass")
        kind = b"system\0" if message.system else b"turn\0"
        return xxhash.xxh3_64_intdigest(kind + raw + b"\0" + message.rest, before)


@lru_cache(maxsize=1024)
def _scope(model: str | None) -> int:
    return xxhash.xxh3_64_intdigest((model or "").encode("utf-8", "surrogatepass"))
