"""Who sits in the batch, and how many blocks the next steps will ask for."""

from __future__ import annotations

from collections.abc import Sequence

NEVER = -1


class Seat:
    """One request in the engine, waiting or running. Steps are the engine's own count of completed steps.

    `length` tokens must be computed before the next token can come (prompt, after a preemption also the
    answer so far), `filled` of them are, `chunk` more in the step in progress. While decoding, one token a
    step is added.
    """

    __slots__ = ("admitted", "blocks", "cached", "chain", "chunk", "done", "filled", "finish", "id", "joined",
                 "length", "named", "order", "output", "prompt", "reported", "watched")

    def __init__(
        self, request: str, order: int, prompt: int, output: int, chain: Sequence[int], *, watched: bool
    ) -> None:
        self.id = request
        self.order = order
        self.prompt = prompt
        self.output = output
        self.chain = chain
        self.watched = watched
        self.blocks: list[int] = []
        self.named = 0           # leading blocks that bear their name
        self.length = prompt
        self.filled = 0
        self.chunk = 0
        self.done = 0            # tokens generated before `joined`
        self.joined = NEVER
        self.finish = NEVER
        self.reported = 0
        self.cached = 0
        self.admitted = False

    @property
    def decoding(self) -> bool:
        """It gains one token with every step."""
        return self.joined != NEVER

    def generated(self, steps: int) -> int:
        """Tokens generated after `steps` steps."""
        return self.done + steps - self.joined if self.joined != NEVER else self.done

    def sit(self, blocks: list[int], length: int, found: int, size: int) -> None:
        """Take a seat: the first `found` blocks, of `size` tokens each, need no computing."""
        self.blocks = blocks
        self.length = length
        self.filled = found * size
        self.named = found

    def join(self, steps: int) -> None:
        """Begin to decode after `steps` steps."""
        self.joined = steps
        self.finish = steps + self.output - self.done

    def stand(self, steps: int) -> int:
        """Stop decoding; returns the tokens whose keys and values are held (never the last one sampled)."""
        held = self.length + steps - self.joined
        self.done += steps - self.joined
        self.joined = self.finish = NEVER
        return held

    def first_growth(self) -> int:
        """The first step that needs a further block is congruent to this, modulo the block size."""
        return self.joined + 1 - self.length


class Growth:
    """How many decoding sequences need a block at which step: each needs one every `size` steps."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._needs = [0] * size
        self.sequences = 0

    def add(self, seat: Seat) -> None:
        """`seat` decodes from now on."""
        self._needs[seat.first_growth() % self._size] += 1
        self.sequences += 1

    def remove(self, seat: Seat) -> None:
        """`seat` does so no longer; called before it stands up."""
        self._needs[seat.first_growth() % self._size] -= 1
        self.sequences -= 1

    def at(self, step: int) -> int:
        """Blocks needed by step number `step` (the first step is 1)."""
        return self._needs[step % self._size]

    def between(self, first: int, count: int) -> int:
        """Blocks needed by `count` steps from number `first`."""
        rounds, rest = divmod(count, self._size)
        begin = first % self._size
        total = rounds * self.sequences + sum(self._needs[begin : begin + rest])
        return total + sum(self._needs[: max(0, begin + rest - self._size)])

    def steps_within(self, blocks: int, first: int, limit: int) -> int:
        """The most steps, from number `first` and up to `limit`, that need no more than `blocks`."""
        if self.sequences * (limit // self._size + 1) <= blocks or self.between(first, limit) <= blocks:
            return limit
        low, high = 0, limit
        while high - low > 1:
            middle = (low + high) // 2
            if self.between(first, middle) <= blocks:
                low = middle
            else:
                high = middle
        return low
