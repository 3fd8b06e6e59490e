"""A book, a scorer and a pool, for tests of the cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infera_cli.blocks import chain
from infera_cli.routing.kv import Choice, Held, KvAware, KvBook, KvWeights, Target
from infera_cli.routing.prefix import PrefixIndex
from infera_cli.routing.prompt import Prompt
from infera_cli.routing.types import Ask, Pool, Worker, WorkerSpec

SIZE = 16


class KvWorld:
    """Workers w0… with pages of 16 tokens, unless `specs` says otherwise."""

    def __init__(self, count: int = 2, *, weights: KvWeights | None = None, **spec: Any) -> None:
        self.book = KvBook(PrefixIndex())
        self.workers = [
            Worker(WorkerSpec(id=f"w{n}", host="h", port=1 + n, **{"kv_block_size": SIZE, **spec}), n)
            for n in range(count)
        ]
        for worker in self.workers:
            self.book.open(worker, "vllm")
        self.kv = KvAware(self.book, weights or KvWeights())
        self.pool = Pool(self.workers)
        self.now = 0.0

    def target(self, number: int, rank: int = 0) -> Target:
        return self.book.targets_of(self.workers[number])[rank]

    def store(self, number: int, tokens: Sequence[int], *, rank: int = 0) -> None:
        """The engine announces all full blocks of the prompt."""
        target = self.target(number, rank)
        size = self.workers[number].spec.kv_block_size or SIZE
        count = len(tokens) // size
        names = [hash((number, rank, tuple(tokens[: size * (n + 1)]))) for n in range(count)]
        self.book.index.store(target.slot, None, names, list(tokens[: count * size]), size)

    def prompt(self, tokens: Sequence[int], **more: Any) -> Prompt:
        chains = {kind: chain(tokens, kind[1]) for kind in self.book.kinds()}
        return Prompt(chains=chains, lengths={"vllm": len(tokens)}, **more)

    def choose(self, prompt: Prompt | Sequence[int], *, pool: Pool | None = None) -> Choice:
        """The decision alone; nothing is written down."""
        made = prompt if isinstance(prompt, Prompt) else self.prompt(prompt)
        found = self.kv.weigh(Ask(work=made), pool or self.pool, 0)
        assert found is not None
        return found

    def send(self, prompt: Prompt | Sequence[int]) -> tuple[str, Held]:
        """Choose and begin; who it was, and what it holds."""
        choice = self.choose(prompt)
        self.now += 0.001
        return choice.target.key, self.book.begin(choice, self.now)

    def terms(self, prompt: Prompt | Sequence[int]) -> dict[str, dict[str, float]]:
        """The terms of every worker, by id."""
        made = prompt if isinstance(prompt, Prompt) else self.prompt(prompt)
        found = self.kv.terms(Ask(work=made), self.pool, [], 0.0)
        return {worker.id: terms for worker, (_, terms) in zip(self.workers, found, strict=True)}


def tokens_of(blocks: int, salt: int = 0, size: int = SIZE) -> list[int]:
    return [salt * 1_000_000 + number for number in range(blocks * size)]
