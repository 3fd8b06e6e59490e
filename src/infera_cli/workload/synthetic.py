"""Made-up datasets: random lengths, shared prefixes with popularity, generated conversations.

Item i depends on (seed, i) alone. Lengths are in tokens. A shared prefix is *added* to the input length
(as `--random-prefix-len` does in vLLM): input 256 with prefix 128 is 384.
"""

from __future__ import annotations

import bisect
import itertools
from random import Random

import msgspec

from infera_cli.errors import ConfigError
from infera_cli.workload import text
from infera_cli.workload.items import Item, Turn


class Lengths(msgspec.Struct, frozen=True):
    """A length in tokens that varies evenly within ± `spread` (a share in [0, 1))."""

    mean: int
    spread: float = 0.0

    def draw(self, dice: Random) -> int:
        """One length, at least 1."""
        if self.spread == 0.0:
            return self.mean
        low, high = round(self.mean * (1 - self.spread)), round(self.mean * (1 + self.spread))
        return dice.randint(max(1, low), max(1, high))


class RandomLengths:
    """Unrelated prompts, optionally behind one prefix common to all."""

    size = None

    def __init__(
        self, seed: int, prompt: Lengths, output: Lengths, *, prefix: int = 0, count: text.Count | None = None
    ) -> None:
        self._seed, self._prompt, self._output, self._count = seed, prompt, output, count
        self._prefix_length = prefix
        self._prefix = text.text(prefix, text.dice(seed, "prefix"), count)

    def item(self, index: int) -> Item:
        """Item `index`."""
        dice = text.dice(self._seed, "item", index)
        length, output = self._prompt.draw(dice), self._output.draw(dice)
        body = text.text(length, dice, self._count)
        prompt = f"{self._prefix} {body}" if self._prefix else body
        return Item(turns=(Turn(prompt, output),), asked=length + self._prefix_length)


class Popularity:
    """Picks a group: evenly, or by Zipf's law with exponent `alpha` (group 0 the most popular)."""

    def __init__(self, groups: int, alpha: float = 0.0) -> None:
        weights = (1 / (rank + 1) ** alpha for rank in range(groups))
        self._edges = list(itertools.accumulate(weights))

    def draw(self, dice: Random) -> int:
        """One group."""
        return bisect.bisect_right(self._edges, dice.random() * self._edges[-1], hi=len(self._edges) - 1)


class SharedPrefixes:
    """Groups of prompts with a common beginning: system prompts, documents, tenants."""

    size = None

    def __init__(
        self, seed: int, prompt: Lengths, output: Lengths, *, groups: int, prefix: int, alpha: float = 0.0,
        count: text.Count | None = None,
    ) -> None:
        if groups < 1:
            raise ConfigError("there must be at least one prefix group", param="--prefix-groups")
        self._seed, self._prompt, self._output, self._count = seed, prompt, output, count
        self._popularity = Popularity(groups, alpha)
        self._prefix_length = prefix
        self._prefixes: dict[int, str] = {}

    def group(self, index: int) -> int:
        """The group of item `index`."""
        return self._popularity.draw(text.dice(self._seed, "group-of", index))

    def item(self, index: int) -> Item:
        """Item `index`: its group's prefix as the system prompt, then a question of its own."""
        dice = text.dice(self._seed, "item", index)
        length, output = self._prompt.draw(dice), self._output.draw(dice)
        question = text.text(length, dice, self._count)
        return Item(
            turns=(Turn(question, output),), system=self._prefix(self.group(index)),
            asked=length + self._prefix_length,
        )

    def _prefix(self, group: int) -> str:
        if group not in self._prefixes:
            made = text.text(self._prefix_length, text.dice(self._seed, "prefix", group), self._count)
            self._prefixes[group] = made
        return self._prefixes[group]


class Conversations:
    """Conversations of several turns; the answers that come are fed back."""

    size = None

    def __init__(
        self, seed: int, prompt: Lengths, output: Lengths, *, turns: Lengths, system: int = 0,
        think: float = 0.0, count: text.Count | None = None,
    ) -> None:
        self._seed, self._prompt, self._output, self._count = seed, prompt, output, count
        self._turns, self._think = turns, think
        self._system = text.text(system, text.dice(seed, "system"), count)

    def item(self, index: int) -> Item:
        """Conversation `index`."""
        dice = text.dice(self._seed, "item", index)
        turns = tuple(
            Turn(
                text.text(self._prompt.draw(dice), dice, self._count), self._output.draw(dice),
                think=self._think if number else 0.0,
            )
            for number in range(self._turns.draw(dice))
        )
        return Item(turns=turns, system=self._system, session=f"conversation-{index}")
