"""Makes Work of prompts: sizes, and a name for each prefix (replica-router §2.5, §2.6).

No tokenizer: four bytes of text count as a token. Each prefix of a conversation has a name, a hash chained over
its messages, so that a later turn, or another agent with the same system prompt, finds the longest one known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import xxhash

from infera_cli.routing.work import BYTES_PER_TOKEN, Work, output_tokens, parameters

Message = tuple[bool, bytes, bytes]
"""One message of a prompt: whether it is the operator's, its text in UTF-8, and what else it holds, as bytes that are
equal when that is."""


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
            size = sum([len(text) for _, text, _ in messages])
            return Work(params=parameters(model), prompt=max(1, _tokens(size)),
                        output=output_tokens(output), affinity=affinity, priority=priority)
        chain: list[int] = []
        sizes: list[int] = []
        total, name, lead, leading = 0, _scope(model), 0, True
        digest, changing = xxhash.xxh3_64_intdigest, self._changing
        for system, text, rest in messages:
            total += len(text)
            leading = leading and system
            lead += leading
            if hint is not None and (not chain or leading):
                name = digest(hint.encode("utf-8", "surrogatepass"), _scope(model) ^ _HINT)
                chain, sizes = [], []
            else:
                said = text if changing is None else changing.sub("", text.decode("utf-8", "replace")).encode()
                name = digest(said, name ^ _SYSTEM if system else name)
                if rest:
                    name = digest(rest, name ^ _REST)
            chain.append(name)
            sizes.append(_tokens(total))
        return Work(
            params=parameters(model), prompt=sizes[-1] or 1 if sizes else 1, output=output_tokens(output),
            chain=tuple(chain), sizes=tuple(sizes), pinned=lead if hint is None else min(1, len(chain)),
            affinity=affinity, priority=priority,
        )  # fmt: skip


_SYSTEM, _REST, _HINT = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
"""Tell apart who said the same text, and what is no text."""
_SHIFT: Final = BYTES_PER_TOKEN.bit_length() - 1


def _tokens(size: int) -> int:
    """Of so many bytes, rounded up."""
    return (size + BYTES_PER_TOKEN - 1) >> _SHIFT


@lru_cache(maxsize=1024)
def _scope(model: str | None) -> int:
    return xxhash.xxh3_64_intdigest((model or "").encode("utf-8", "surrogatepass"))
