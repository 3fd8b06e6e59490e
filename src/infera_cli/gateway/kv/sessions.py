"""Which conversations stopped matching their own beginning, and where: the usual reason for a cold cache.

Each turn of a session is compared with the one before. Where earlier blocks are gone from the new prompt, the first
part that differs is named: the first line of the system text (clients put dates and bills there), the tools, the
system text, or a message of the history.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest

from infera_cli.protocol.prompt_body import PromptBody
from infera_cli.routing.prompt import PartName, Parts, Prompt
from infera_cli.tokens.memo import Memo

KEPT_BYTES = 32 << 20
BREAKS_KEPT = 1000
_PER_BLOCK = 48

class _Turn:
    """The last turn of a session."""

    __slots__ = ("chain", "kind", "number", "parts")

    def __init__(self, number: int, kind: tuple[str, int], chain: Sequence[int], parts: Parts) -> None:
        self.number = number
        self.kind = kind
        self.chain = chain
        self.parts = parts


class Sessions:
    """Watches sessions by name. `wall` is Unix time."""

    def __init__(self, wall: Callable[[], float], *, kept_bytes: int = KEPT_BYTES) -> None:
        self._wall = wall
        self._turns: Memo[str, _Turn] = Memo(kept_bytes)
        self._breaks: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def saw(self, session: str, prompt: Prompt) -> None:
        """A turn of `session`, with the hashes of its prompt. Only what was made in one way is compared."""
        before, parts = self._turns.get(session), prompt.parts
        number = before.number + 1 if before is not None else 1
        kind = before.kind if before is not None and before.kind in prompt.chains else min(prompt.chains)
        chain = prompt.chains[kind]
        if before is not None and before.kind == kind and before.chain is not chain:
            common = common_blocks(before.chain, chain)
            if common < len(before.chain):
                lost = (len(before.chain) - common) * kind[1]
                self._broke(session, number, first_difference(before.parts, parts), lost)
        self._turns.put(session, _Turn(number, kind, chain, parts), _PER_BLOCK * (len(chain) + len(parts)))

    def _broke(self, session: str, turn: int, part: str, tokens: int) -> None:
        earlier = self._breaks.pop(session, None)
        times = earlier["times"] + 1 if earlier is not None else 1
        again = earlier["tokens_again"] + tokens if earlier is not None else tokens
        self._breaks[session] = {
            "session": session, "turn": turn, "part": part, "tokens_lost": tokens, "tokens_again": again,
            "times": times, "at": self._wall(),
        }  # fmt: skip
        if len(self._breaks) > BREAKS_KEPT:
            self._breaks.popitem(last=False)

    def listing(self) -> list[dict[str, Any]]:
        """Sessions whose prefix stopped matching, the last one first."""
        return list(reversed(self._breaks.values()))


def common_blocks(old: Sequence[int], new: Sequence[int]) -> int:
    """How many leading blocks two chains share; a chained hash vouches for all before it."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[middle - 1] == new[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low


def parts_of(body: PromptBody) -> Parts:
    """What a prompt consists of, in the order in which people change it by mistake."""
    system = body.system or b"".join(raw for role, raw in body.messages if role in ("system", "developer"))
    text = _text(system)
    parts: list[tuple[PartName, int]] = [
        ("first line of the system text", _digest(text.partition("\n")[0].encode("utf-8", "replace"))),
        ("tools", _digest(body.tools)),
        ("system text", _digest(system)),
    ]
    parts += [
        ((number, role), _digest(raw)) for number, (role, raw) in enumerate(body.messages, 1)
        if role not in ("system", "developer")
    ]  # fmt: skip
    return parts


def first_difference(old: Parts, new: Parts) -> str:
    """The first part of `old` that `new` has otherwise, or has not."""
    for place, (part, digest) in enumerate(old):
        name = part if isinstance(part, str) else f"message {part[0]} ({part[1]})"
        if place >= len(new):
            return f"{name}, left out"
        if new[place][1] != digest:
            return name
    if not any(isinstance(part, tuple) for part, _ in old):
        return "the prompt"  # of a completion, in text or tokens, which has no other parts
    return "the way it is rendered"


def _digest(raw: bytes) -> int:
    return xxh3_64_intdigest(raw)


def _text(system: bytes) -> str:
    """The words of a system text, however they are wrapped."""
    try:
        found = msgspec.json.decode(system) if system else ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    if isinstance(found, dict):
        found = found.get("content")
    if isinstance(found, list):
        found = next((part.get("text") for part in found if isinstance(part, dict)), "")
    return found if isinstance(found, str) else ""
