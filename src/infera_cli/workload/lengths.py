"""Requests as numbers: lengths, and names of blocks that are equal where prompts are.

What a simulation needs of a workload; no text is made, so a million requests cost seconds. The datasets are those
of `bench`, with lengths and groups drawn from the same distributions. A block's name stands for its place and all
before it, as a chained hash does. No workload ends: what was read from a file starts again after its last row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, count, cycle
from math import inf

import msgspec

from infera_cli.workload import text
from infera_cli.workload.synthetic import Lengths, Popularity
from infera_cli.workload.traces import Row

_OWN = 1 << 40      # names of blocks that no other request has begin here
_LAYER = 1 << 20    # blocks of one shared prefix, at most
_PRIME = (1 << 61) - 1
_STEP = 0x9E3779B97F4A7C15 % _PRIME


class Part(msgspec.Struct, gc=False, frozen=True):
    """One request: `prompt` and `output` in tokens; `chain` names the full blocks of both.

    `names` and `sizes` are its messages as prefixes, with their ends in tokens; the first `pinned` are the
    operator's. `think` is the pause in seconds after the previous answer; the request comes no earlier than `after`
    seconds from the beginning of its conversation, either.
    """

    prompt: int
    output: int
    chain: Sequence[int]
    names: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    pinned: int = 0
    think: float = 0.0
    after: float = 0.0


class Talk(msgspec.Struct, gc=False, frozen=True):
    """One conversation: its first request is due at `at` seconds, the others when the one before is answered, and in a
    replay at their own times if these are later."""

    turns: tuple[Part, ...]
    session: str | None = None
    at: float = 0.0

    def due(self, at: float) -> Talk:
        """The same at another time, each answer followed by the next request."""
        turns = self.turns
        if turns[-1].after:
            turns = tuple(msgspec.structs.replace(part, after=0.0) for part in turns)
        return Talk(turns, self.session, at)

    def replayed(self, speed: float, until: float = inf) -> Talk:
        """The same at its own times, so many times faster, without what would come `until` then or later."""
        turns, at = self.turns, self.at / speed
        if len(turns) > 1:
            turns = tuple(
                msgspec.structs.replace(part, after=part.after / speed, think=part.think / speed)
                for part in turns if at + part.after / speed <= until
            )
        return Talk(turns, self.session, at)


Talks = Iterator[Talk]


def random_lengths(seed: int, prompt: Lengths, output: Lengths, *, prefix: int, block: int) -> Talks:
    """`random`: unrelated prompts, behind one common prefix of `prefix` tokens where that is not 0."""
    return _prefixed(seed, prompt, output, prefix=prefix, block=block, popularity=None)


def shared_prefixes(
    seed: int, prompt: Lengths, output: Lengths, *, groups: int, prefix: int, alpha: float, block: int
) -> Talks:
    """`prefix`: groups of prompts with a common beginning."""
    return _prefixed(seed, prompt, output, prefix=prefix, block=block, popularity=Popularity(groups, alpha))


def _prefixed(
    seed: int, prompt: Lengths, output: Lengths, *, prefix: int, block: int, popularity: Popularity | None
) -> Talks:
    own, shared = _OWN, prefix // block
    dice = text.dice(seed, "lengths")
    while True:
        length, answer = prompt.draw(dice), output.draw(dice)
        group = popularity.draw(dice) if popularity else 0
        more = (prefix + length + answer) // block - shared
        first = (group + 1) * _LAYER
        rest = range(own, own + more)
        own += more + 1
        names: tuple[int, ...] = (own - 1,)
        sizes: tuple[int, ...] = (prefix + length,)
        if prefix:
            names, sizes = (first, own - 1), (prefix, prefix + length)
        chain = [*range(first, first + shared), *rest] if shared else rest
        yield Talk((Part(prefix + length, answer, chain, names, sizes, 1 if popularity else 0),))


def conversations(
    seed: int, prompt: Lengths, output: Lengths, *, turns: Lengths, system: int, think: float, block: int
) -> Talks:
    """`multi-turn`: each turn's prompt holds all turns and answers before it."""
    own, shared = _OWN, system // block
    dice = text.dice(seed, "lengths")
    for index in count():
        made: list[Part] = []
        tokens = system
        names, sizes = ((_LAYER,), (system,)) if system else ((), ())
        for number in range(turns.draw(dice)):
            tokens += prompt.draw(dice)
            answer = output.draw(dice)
            names, sizes = (*names, own + number), (*sizes, tokens)
            rest = range(own, own + (tokens + answer) // block - shared)
            chain = [*range(_LAYER, _LAYER + shared), *rest] if shared else rest
            made.append(Part(tokens, answer, chain, names, sizes, 1 if system else 0, think if number else 0.0))
            tokens += answer
        own += max(tokens // block - shared, len(made)) + 1
        yield Talk(tuple(made), f"conversation-{index}")


def trace(sessions: Sequence[Sequence[Row]], *, page: int, block: int) -> Talks:
    """Recorded requests, each list one conversation, whose later rows are what is said after the answers before.

    `page` is what a block id stands for in tokens. An id is the same page where the pages before it are the same
    (bench-and-cli §A13).
    """
    own = _OWN << 22    # above the names of pages
    for session in cycle(sessions):
        made: list[Part] = []
        chain: list[int] = []
        tokens = 0
        for row in session:
            prompt, answer = tokens + max(1, row.prompt), max(1, row.output)
            pages = _chained(row.blocks)
            if not made:
                chain = _blocks(pages, min(prompt, len(pages) * page), page, block)
            more = (prompt + answer) // block - len(chain)
            chain = [*chain, *range(own, own + more)]
            own += more + 1
            ends = tuple(min(prompt, page * (place + 1)) for place in range(len(pages)))
            think, after = (row.delay, row.at - session[0].at) if made else (0.0, 0.0)
            made.append(Part(prompt, answer, chain, pages, ends, 0, think, after))
            tokens = prompt + answer
        yield Talk(tuple(made), session[0].session or session[0].pin, session[0].at)


def _chained(ids: Sequence[int]) -> tuple[int, ...]:
    """A name for each page and all before it."""
    return tuple(accumulate(ids, lambda before, page: (before * _STEP + page + 1) % _PRIME, initial=1))[1:]


def _blocks(pages: Sequence[int], tokens: int, page: int, block: int) -> list[int]:
    """The names of the full blocks in the first `tokens` tokens. A block is known by the page that it ends in, and how
    far in: the same page is the same all the way there, of two pages that differ nobody knows where they begin to."""
    return [(pages[last // page] * page + last % page) % _PRIME for last in range(block - 1, tokens, block)]
