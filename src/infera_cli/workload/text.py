"""Text of a wished length, without a tokenizer.

Each word below is one token after a space in the common byte-pair vocabularies, so n words are n tokens
give or take the chat template. With a tokenizer the text is fitted to the exact count. Texts come from a
fixed hash of (seed, name), never from Python's salted `hash()`, so a replay is the same in every process
(bench-and-cli §A1, §A13).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random

Count = Callable[[str], int]
"""How many tokens a text has; None where there is no tokenizer."""

_PROSE = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an"
    " they which one you were all her she there would their we him been has when who will no more if out so"
    " up said what its about than into them can only other time new some could these two may first then do"
    " any like my now over such our man me even most made after also did many off before must well back"
    " through years much where your way down should because long each just state those people too mr how"
    " little good world make very year still see own work men day get here old life both between being under"
    " three never know same last another while us might great go come since against right came take used"
    " himself few house use during without again place around however home small found thought went say"
    " part once general high upon school every does got united left number course war until always away"
    " something fact though water less public put think almost hand enough far took head yet government"
    " system better set told nothing night end why called eyes find going look asked later point knew next"
    " city give group toward young days let room word face level field side order case large need real"
)
WORDS = tuple(_PROSE.split())


def dice(seed: int, *name: object) -> Random:
    """Dice for one named thing: the same in every process and on every machine."""
    digest = hashlib.blake2b(repr((seed, *name)).encode(), digest_size=8).digest()
    return Random(int.from_bytes(digest, "little"))  # noqa: S311  # prompts, not secrets


def derive(seed: int, *name: object) -> int:
    """A seed for one named part (a sweep cell, a repetition) of a run with `seed`."""
    return dice(seed, *name).getrandbits(48)


def words(count: int, using: Random) -> str:
    """`count` words with single spaces, no space in front."""
    return " ".join(using.choices(WORDS, k=count)) if count > 0 else ""


def text(length: int, using: Random, count: Count | None = None) -> str:
    """A text of `length` tokens: exact with a tokenizer, else one word per token."""
    found = words(length, using)
    if count is None or length <= 0:
        return found
    parts = found.split(" ")
    for _ in range(8):
        difference = length - count(" ".join(parts))
        if difference == 0:
            break
        if difference > 0:
            parts += using.choices(WORDS, k=difference)
        else:
            del parts[max(1, len(parts) + difference):]
    return " ".join(parts)
