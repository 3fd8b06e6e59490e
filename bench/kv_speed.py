"""`python -m bench.kv_speed`: what cache-aware routing costs, in CPU time; exit 1 when a bar is missed.

Each figure is the median of several rounds of this process's own CPU time, so that a busy machine changes it little.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from infera_cli.blocks import chain
from infera_cli.gateway.kv.reader import PromptReader
from infera_cli.protocol.kv_events import Stored, decode
from infera_cli.routing.kv import KvAware, KvBook, KvWeights
from infera_cli.routing.prefix import PrefixIndex
from infera_cli.routing.prompt import Prompt
from infera_cli.routing.types import Ask, Pool, Worker, WorkerSpec
from infera_cli.tokens.load import load_all

SIZE = 16
ROUNDS = 7
_missed = 0


def cpu(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Median CPU seconds of `work`."""
    taken = []
    for _ in range(rounds):
        before = time.process_time()
        work()
        taken.append(time.process_time() - before)
    return statistics.median(taken)


def tell(name: str, value: float, unit: str, bar: float, *, least: bool = False) -> None:
    """One figure against its bar."""
    global _missed  # noqa: PLW0603 - the exit code of a script
    met = value >= bar if least else value <= bar
    _missed += not met
    print(f"{'met   ' if met else 'MISSED'} {name}: {value:,.4g} {unit}, bar {'at least ' if least else ''}{bar:,g}")


# ── the index ────────────────────────────────────────────────────────────────────────────────────────
def payloads(blocks: int, per_event: int, per_batch: int = 8) -> list[bytes]:
    """Batches as vLLM publishes them."""
    dice = random.Random(1)
    found = []
    for _ in range(blocks // (per_event * per_batch)):
        events = [
            {"type": "BlockStored", "block_hashes": [dice.getrandbits(64) for _ in range(per_event)],
             "parent_block_hash": None, "token_ids": [dice.randrange(150_000) for _ in range(per_event * SIZE)],
             "block_size": SIZE, "lora_id": None, "medium": "GPU", "lora_name": None, "group_idx": 0,
             "kv_cache_spec_kind": "full_attention"}
            for _ in range(per_batch)
        ]
        found.append(msgspec.msgpack.encode([1.0, events, 0]))
    return found


def take_in(batches: list[bytes]) -> PrefixIndex:
    """From the wire into an index."""
    index = PrefixIndex()
    slot = index.open("w")
    for payload in batches:
        for event in decode(payload).events:
            if isinstance(event, Stored):
                index.store(slot, event.parent, event.hashes, event.tokens, event.block_size, adapter=event.adapter,
                            salt=event.salt, extras=event.extras, group=event.group)
    return index


def index_figures() -> None:
    """Speed from the wire, and memory."""
    for per_event in (32, 4, 1):
        batches = payloads(100_000, per_event)
        tell(f"blocks a second from the wire, {per_event} to an event",
             100_000 / cpu(lambda batches=batches: take_in(batches), 3), "blocks/s",  # type: ignore[misc]
             200_000 if per_event > 1 else 80_000, least=True)
    worst = 0.0
    for count in (100_000, 180_000, 360_000):  # dictionaries have just grown, or are just about to
        batches = payloads(count, 32)
        tracemalloc.start()
        index = take_in(batches)
        worst = max(worst, tracemalloc.get_traced_memory()[0] / len(index))
        tracemalloc.stop()
    tell("memory of a block with all maps", worst, "bytes", 300)


def decision_figure() -> None:
    """512 workers, a prompt of 8,000 blocks, hashes given."""
    book = KvBook(PrefixIndex())
    workers = [Worker(WorkerSpec(id=f"w{n}", host="h", port=1 + n, kv_block_size=SIZE), n) for n in range(512)]
    tokens = list(range(8000 * SIZE))
    hashes = chain(tokens, SIZE)
    dice = random.Random(2)
    for worker in workers:
        (target,) = book.open(worker, "vllm")
        depth = dice.choice((0, 0, 8000, dice.randrange(8000)))
        for start in range(0, depth, 400):
            part = hashes[start : min(depth, start + 400)]
            book.index.store(target.slot, hashes[start - 1] if start else None, part,
                             tokens[start * SIZE : (start + len(part)) * SIZE], SIZE)
    kv, pool = KvAware(book, KvWeights()), Pool(workers)
    prompt = Prompt(chains={("vllm", SIZE): hashes}, lengths={"vllm": len(tokens)})
    taken = cpu(lambda: kv.weigh(Ask(work=prompt), pool, 0), 31)
    tell("a decision over 512 workers and 8,000 blocks", taken * 1e3, "ms", 2)


# ── tokens ───────────────────────────────────────────────────────────────────────────────────────────
def coding_agent(reader: PromptReader) -> None:
    """A turn of 100,000 tokens, 300 messages, 40 tools; all but the last step seen."""
    source = Path(json.__file__).with_name("decoder.py").read_text() * 4
    dice = random.Random(3)

    def text(length: int) -> str:
        at = dice.randrange(len(source) - length)
        return source[at : at + length]

    tools = [{"type": "function", "function": {"name": f"tool_{n}", "description": text(300), "parameters": {
        "type": "object", "properties": {"path": {"type": "string"}}}}} for n in range(40)]  # fmt: skip
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": text(6000)}, {"role": "user", "content": text(2000)},
    ]  # fmt: skip
    while len(messages) < 299:
        step = len(messages)
        call = {"id": f"c{step}", "type": "function", "function": {"name": "tool_1", "arguments": '{"path": "a"}'}}
        messages += [{"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
                     {"role": "tool", "tool_call_id": f"c{step}", "content": text(1900)}]
    bodies = []
    for _ in range(ROUNDS + 1):
        bodies.append(json.dumps({"model": "m", "messages": messages, "tools": tools}).encode())
        call = {"id": "c", "type": "function", "function": {"name": "tool_1", "arguments": '{"path": "a"}'}}
        messages = [*messages, {"role": "assistant", "content": text(200), "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c", "content": text(1500)}]
    found = reader.start(b"", bodies[0]).finish()
    left = iter(bodies[1:])
    taken = cpu(lambda: reader.start(b"", next(left)).finish())
    length = found.lengths["vllm"]
    tell(f"a coding agent's turn of {length:,} tokens, all but the last step seen", taken * 1e3, "ms", 10)


def token_figures(model: Path) -> None:
    """Known and unknown prompts."""
    reader = PromptReader(load_all([str(model)]), lambda: {("vllm", SIZE)})
    coding_agent(reader)
    words = " ".join(f"word{n}" for n in range(1400))
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": words}]}).encode()
    reader.start(b"", body).finish()
    tell("a conversation of some 4,000 tokens seen before", cpu(lambda: reader.start(b"", body).finish(), 31) * 1e6,
         "µs", 200)


def main() -> int:
    """All figures."""
    from tests.tokens import models, templates  # noqa: PLC0415 - a tokenizer made on the spot, as the tests have it

    index_figures()
    decision_figure()
    with tempfile.TemporaryDirectory() as folder:
        token_figures(models.write(Path(folder), templates.THINKING))
    return 1 if _missed else 0


if __name__ == "__main__":
    sys.exit(main())
