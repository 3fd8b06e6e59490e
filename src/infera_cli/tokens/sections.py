"""Renders a conversation message by message, where the template allows it.

A message's text is found by rendering it between stand-ins of its neighbours and cutting at the first special
token of each seam. What it is then depends on nothing but itself, its neighbours' roles, and whether a later
user message follows; so it can be remembered. Whether a template keeps to that is proven when it is loaded:
random conversations must come out as they do in one piece. Where they do not, nothing is cut.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from infera_cli.tokens.template import ChatTemplate, Message, Unrenderable

_STAND_IN, _LATER = "zqxjstandin", "zqxjlater"
_PROOFS = 60
_64_BITS = (1 << 64) - 1


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a message stands: roles around it (None: the end, a generation prompt follows), and whether no
    user message comes later."""

    before: str
    role: str
    after: str | None
    open: bool


class Section(msgspec.Struct, frozen=True, gc=False):
    """Messages `first` to `last` (exclusive) that are rendered together. `place` is None for the head; `mark` stands
    for all that but the messages themselves."""

    first: int
    last: int
    place: Place | None
    after: str | None
    open: bool
    mark: int


def sections(roles: Sequence[str]) -> Sequence[Section] | None:
    """A conversation in sections: the head up to the first user message, then runs of tool answers and single
    messages. None where roles follow each other in no usual way, or there is only a head."""
    return _sections(tuple(roles))


@lru_cache(maxsize=512)
def _sections(roles: tuple[str, ...]) -> Sequence[Section] | None:
    """Conversations have few shapes, and many have the same."""
    users = [at for at, role in enumerate(roles) if role == "user"]
    if not users:
        return None
    starts = [0]
    for at in range(users[0] + 1, len(roles)):
        if roles[at] not in ("user", "assistant", "tool"):
            return None
        if roles[at] != "tool" or roles[at - 1] != "tool":
            starts.append(at)
    if len(starts) < 2:
        return None
    found = []
    for place, first in enumerate(starts):
        last = starts[place + 1] if place + 1 < len(starts) else len(roles)
        after = roles[last] if last < len(roles) else None
        is_open = users[-1] < last
        where, mark = _standing((roles[first - 1], roles[first]) if first else None, after, is_open)
        found.append(Section(first, last, where, after, is_open, mark))
    return found


@lru_cache(maxsize=512)
def _standing(around: tuple[str, str] | None, after: str | None, is_open: bool) -> tuple[Place | None, int]:
    """The place, and its mark. Python's own hash is good enough for what lives as long as this process."""
    mark = hash((around, after, is_open)) & _64_BITS
    return Place(*around, after, is_open) if around is not None else None, mark


class Cutter:
    """Cuts one template's renderings under the variables `more`. `border` finds special tokens; `exact` says
    whether the proof held."""

    def __init__(
        self, template: ChatTemplate, border: re.Pattern[str] | None, *, more: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self._template = template
        self._more = more or {}
        self._border = border
        self._seams: dict[tuple[str, str, bool], int | None] = {}
        self._starts: dict[tuple[str, str], int] = {}
        self.exact = border is not None and self._proven(random.Random(seed))  # noqa: S311 - the same at every start

    def text(
        self, own: Sequence[Message], part: Section, tools: Sequence[Any] | None
    ) -> str | None:
        """The text of one section, whose messages are `own`; None where it cannot be cut out.

        Raises Unrenderable.
        """
        more = self._more
        lead = _lead(part.place.before) if part.place is not None else []
        start = self._start(part.place) if part.place is not None else 0
        if part.after is None:
            text = self._template.render([*lead, *own], tools if part.place is None else None, more=more)
            return self._checked(text, start, len(text))
        role = own[-1]["role"]
        seam = self._seam(role, part.after, part.open)
        if seam is None:
            return None
        following = [_stand_in(part.after), *_afterwards(part.after, part.open)]
        wanted = tools if part.place is None else None
        text = self._template.render([*lead, *own, *following], wanted, generate=False, more=more)
        at = text.rfind(_STAND_IN)  # the last: people may write the word, too
        return self._checked(text, start, at - seam)

    def _checked(self, text: str, start: int, end: int) -> str | None:
        assert self._border is not None  # noqa: S101 - nothing is cut without borders
        if end < start or (start and not self._border.match(text, start)):
            return None
        return text[start:end]

    # ── seams ────────────────────────────────────────────────────────────────────────────────────────
    def _seam(self, role: str, after: str, is_open: bool) -> int | None:
        """Characters from the seam after a message of `role` to the words of the next one; None: no seam."""
        key = role, after, is_open
        if key not in self._seams:
            lead = [*_lead(_LEADS[role])[:-1], *_told(role, "qqzzfirst")]
            following = [_stand_in(after), *_afterwards(after, is_open)]
            text = self._template.render([*lead, *following], generate=False, more=self._more)
            end = text.find("qqzzfirst") + len("qqzzfirst")
            found = self._border.search(text, end) if self._border is not None else None
            at = text.find(_STAND_IN, end)
            self._seams[key] = at - found.start() if found is not None and found.start() < at else None
        return self._seams[key]

    def _start(self, place: Place) -> int:
        """Where a message begins after the stand-ins that lead to it."""
        key = place.before, place.role
        if key not in self._starts:
            lead = _lead(place.before)
            text = self._template.render([*lead, _stand_in(place.role)], generate=False, more=self._more)
            seam = self._seam(place.before, place.role, True)
            if seam is None:
                raise Unrenderable("seam")
            self._starts[key] = text.find(_STAND_IN) - seam
        return self._starts[key]

    # ── the proof ────────────────────────────────────────────────────────────────────────────────────
    def _proven(self, dice: random.Random) -> bool:
        compared = 0
        for messages, tools in _conversations(dice):
            cut = sections([message["role"] for message in messages])
            try:
                whole = self._template.render(messages, tools, more=self._more)
            except Unrenderable:
                continue
            if cut is None:
                continue
            try:
                texts = [self.text(messages[part.first : part.last], part, tools) for part in cut]
            except Unrenderable:
                continue
            if None in texts:
                continue
            compared += 1
            if "".join(filter(None, texts)) != whole:
                return False
        return compared > 0


_LEADS = {"user": "assistant", "assistant": "user", "tool": "tool"}
_CALL = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": {"at": 1}}}


def _stand_in(role: str) -> dict[str, Any]:
    return _told(role, _STAND_IN)[0]


def _afterwards(after: str, is_open: bool) -> list[dict[str, Any]]:
    """What makes the messages before closed: a user message later than them."""
    return [] if is_open or after == "user" else [{"role": "user", "content": _LATER}]


def _told(role: str, text: str) -> list[dict[str, Any]]:
    if role == "tool":
        return [{"role": "tool", "content": text, "tool_call_id": "call00001"}]
    return [{"role": role, "content": text}]


def _lead(last: str) -> list[dict[str, Any]]:
    """A short conversation that ends with a message of role `last`."""
    user = {"role": "user", "content": "p"}
    if last == "user":
        return [user]
    if last == "assistant":
        return [user, {"role": "assistant", "content": "q"}]
    return [
        user,
        {"role": "assistant", "content": "", "tool_calls": [_CALL]},
        {"role": "tool", "content": "r", "tool_call_id": "call00001"},
    ]


_SAID = ("Hello.", "two  words ", "\n a list:\n- x\n- y\n", "äöü 你好", "x = {'a': 1}", "<b>&\"'", "a" * 50, "")
_TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}}


def _conversations(dice: random.Random) -> Iterator[tuple[list[dict[str, Any]], list[Any] | None]]:
    for _ in range(_PROOFS):
        messages: list[dict[str, Any]] = []
        if dice.random() < 0.5:
            messages.append({"role": "system", "content": dice.choice(_SAID[:-1])})
        for turn in range(dice.randrange(1, 5)):
            messages.append({"role": "user", "content": f"{turn} {dice.choice(_SAID)}"})
            for step in range(dice.randrange(3)):
                messages += _step(dice, step)
            messages.append({"role": "assistant", "content": dice.choice(_SAID), **_reasoning(dice)})
        if dice.random() < 0.7:
            messages.append({"role": "user", "content": dice.choice(_SAID[:-1])})
        else:
            messages += _step(dice, 9)
        yield messages, [_TOOL] if dice.random() < 0.5 else None


def _step(dice: random.Random, number: int) -> list[dict[str, Any]]:
    calls = [{**_CALL, "id": f"call0000{number}"[-9:]} for _ in range(dice.randrange(1, 3))]
    asked = {"role": "assistant", "content": dice.choice(("", "Let me look.")), "tool_calls": calls, **_reasoning(dice)}
    return [asked, *({"role": "tool", "content": dice.choice(_SAID), "tool_call_id": call["id"]} for call in calls)]


def _reasoning(dice: random.Random) -> dict[str, Any]:
    return {"reasoning_content": "thinking", "reasoning": "thinking"} if dice.random() < 0.3 else {}
