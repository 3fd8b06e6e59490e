"""Makes Work of prompts: sizes, and a name for each prefix (replica-router §2.5, §2.6).

No tokenizer: four bytes of text count as a token. Each prefix of a conversation has a name, a hash chained over
its messages, so that a later turn, or another agent with the same system prompt, finds the longest one known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Protocol

import xxhash

from infera_cli.routing.work import BYTES_PER_TOKEN, Work, output_tokens, parameters


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
        digest, changing = xxhash.xxh3_64_intdigest, self._changing
        for message in messages:
            text, system = message.text, message.system
            raw = text.encode("utf-8", "surrogatepass")
            total += len(raw)
            leading = leading and system
            lead += leading
            if hint is not None and (not chain or leading):
                name = digest(hint.encode("utf-8", "surrogatepass"), _scope(model) ^ _HINT)
                chain, sizes = [], []
            else:
                if changing is not None:
                    raw = changing.sub("", text).encode("utf-8", "surrogatepass")
                name = digest(raw, name ^ _SYSTEM if system else name ^ _TURN)
                if message.rest:
                    name = digest(message.rest, name)
            chain.append(name)
            sizes.append(-(-total // BYTES_PER_TOKEN))
        return Work(
            params=parameters(model), prompt=sizes[-1] or 1 if sizes else 1, output=output_tokens(output),
            chain=tuple(chain), sizes=tuple(sizes), pinned=lead if hint is None else min(1, len(chain)),
            affinity=affinity, priority=priority,
        )  # fmt: skip


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


_SYSTEM, _TURN, _HINT = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
"""Tell apart who said the same text."""


@lru_cache(maxsize=1024)
def _scope(model: str | None) -> int:
    return xxhash.xxh3_64_intdigest((model or "").encode("utf-8", "surrogatepass"))
