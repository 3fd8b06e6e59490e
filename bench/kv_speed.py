"""`python -m bench.kv_speed [--out PAGE]`: what the parts of cache-aware routing cost; exit 1 when a bar is missed.

Each figure is the median of several rounds of this process's own CPU time, so that a busy machine changes it little.
Writes bench/results/kv-speed.md.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from bench import kv_bodies
from bench.record import RESULTS, Bar, publish
from infera_cli.blocks import chain
from infera_cli.fleet.kv_feed.counters import FeedCounters
from infera_cli.fleet.kv_feed.intake import Inlet, Intake
from infera_cli.gateway.kv.reader import PromptReader
from infera_cli.routing.kv import KvAware, KvBook, KvWeights
from infera_cli.routing.prefix import PrefixIndex
from infera_cli.routing.prompt import Prompt
from infera_cli.routing.types import Ask, Pool, Worker, WorkerSpec
from infera_cli.tokens.load import load_all

SIZE = 16
ROUNDS = 7
CHAT = b"/v1/chat/completions"
BLOCKS = 100_000


def cpu(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Median CPU seconds of `work`."""
    taken = []
    for _ in range(rounds):
        before = time.process_time()
        work()
        taken.append(time.process_time() - before)
    return statistics.median(taken)


def at_most(claim: str, value: float, unit: str, limit: float) -> Bar:
    """A figure that must not be above `limit`."""
    return Bar(claim, f"≤ {limit:,g} {unit}", f"{value:,.4g} {unit}", value <= limit)


def at_least(claim: str, value: float, unit: str, limit: float) -> Bar:
    """A figure that must not be below `limit`."""
    return Bar(claim, f"≥ {limit:,g} {unit}", f"{value:,.0f} {unit}", value >= limit)


# ── the index ────────────────────────────────────────────────────────────────────────────────────────
def payloads(blocks: int, per_event: int, *, in_a_row: bool = False) -> list[bytes]:
    """Batches of eight events as vLLM publishes them, each the beginning of a prompt; `in_a_row` as SGLang does, where
    an event goes on where the one before ended."""
    dice = random.Random(1)
    found, parent = [], None
    for _ in range(blocks // (per_event * 8)):
        events = []
        for _ in range(8):
            hashes = [dice.getrandbits(64) for _ in range(per_event)]
            tokens = [dice.randrange(150_000) for _ in range(per_event * SIZE)]
            events.append({
                "type": "BlockStored", "block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens,
                "block_size": SIZE, "lora_id": None, "medium": "GPU", "lora_name": None, "group_idx": 0,
                "kv_cache_spec_kind": "full_attention",
            })  # fmt: skip
            parent = hashes[-1] if in_a_row else None
        found.append(msgspec.msgpack.encode([1.0, events, 0]))
    return found


class Nobody(Intake):
    """An intake that is not woken: its inlets are worked off at once."""

    def wake(self, inlet: Inlet) -> None:
        """Nothing to do."""


def take_in(batches: list[bytes]) -> PrefixIndex:
    """From the wire into an index, the way that payloads go."""
    intake = Nobody(PrefixIndex(1 << 30))
    inlet = Inlet(intake, intake.index.open("w"), FeedCounters(), SIZE)
    for payload in batches:
        inlet.apply(payload)
        while inlet.step(0.0):
            pass
    return intake.index


def index_figures() -> list[Bar]:
    """Speed from the wire, and memory."""
    bars = []
    for per_event, in_a_row in ((32, False), (4, False), (1, True), (1, False)):
        batches = payloads(BLOCKS, per_event, in_a_row=in_a_row)
        blocks = len(take_in(batches))
        speed = blocks / cpu(lambda batches=batches: take_in(batches), 5)  # type: ignore[misc]
        shape = f"{per_event} to an event" + (", each going on" if in_a_row else "")
        bars.append(at_least(f"blocks from the wire, {shape}", speed, "blocks/s", 200_000))
    worst = 0.0
    for count in (100_000, 180_000, 360_000):  # dictionaries have just grown, or are just about to
        batches = payloads(count, 32)
        tracemalloc.start()
        index = take_in(batches)
        worst = max(worst, tracemalloc.get_traced_memory()[0] / len(index))
        tracemalloc.stop()
    return [*bars, at_most("memory of a block with all maps", worst, "bytes", 300)]


def decision_figure() -> tuple[Bar, str]:
    """512 workers, a prompt of 8,000 blocks, hashes given: the bar, and the same beside a loop of Python."""
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
    known = dict.fromkeys(hashes, 0)

    def look_up() -> None:
        for block in hashes:
            known[block]

    many = 8000 * taken / cpu(look_up, 31)
    beside = f"A decision over 512 workers and 8,000 blocks costs as much as {many:,.0f} look-ups in a dict."
    return at_most("a decision over 512 workers and 8,000 blocks", taken * 1e3, "ms", 2), beside


# ── tokens ───────────────────────────────────────────────────────────────────────────────────────────
def token_figures(model: Path) -> list[Bar]:
    """Known and unknown prompts."""
    reader = PromptReader(load_all([str(model)]), lambda: {("vllm", SIZE)})
    agent = kv_bodies.Agent().requests()
    length = reader.start(CHAT, next(agent)).finish().lengths["vllm"]
    bodies = iter([next(agent) for _ in range(ROUNDS)])
    turn = cpu(lambda: reader.start(CHAT, next(bodies)).finish())
    body = json.dumps(kv_bodies.conversation()).encode()
    short = reader.start(CHAT, body).finish().lengths["vllm"]
    again = cpu(lambda: reader.start(CHAT, body).finish(), 31)
    return [
        at_most(f"a coding agent's turn of {length:,} tokens, all but the last step seen", turn * 1e3, "ms", 10),
        at_most(f"a conversation of {short:,} tokens seen before", again * 1e6, "µs", 200),
    ]


def unseen(model: Path, bodies: Iterator[bytes]) -> tuple[float, int]:
    """CPU milliseconds and tokens of a prompt that nobody saw before."""
    reader = PromptReader(load_all([str(model)]), lambda: {("vllm", SIZE)})
    length = reader.start(CHAT, next(bodies)).finish().lengths["vllm"]
    return cpu(lambda: reader.start(CHAT, next(bodies)).finish(), 21) * 1e3, length


def unseen_figures(folder: Path) -> tuple[Bar, str]:
    """Text as people write it, and letters that make no words."""
    text, length = unseen(kv_bodies.write_reader(folder / "reader"), kv_bodies.readings())
    letters, many = unseen(kv_bodies.write_model(folder / "small"), kv_bodies.strangers())
    bar = at_most(f"32 KB of text never seen, {length:,} tokens", text, "ms", 10)
    return bar, f"32 KB of random letters, which make no words, are {many:,} tokens and take {letters:.3g} ms."


def main() -> int:
    """Write the page; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "kv-speed.md")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        decision, beside = decision_figure()
        never_seen, letters = unseen_figures(Path(folder))
        tokens = token_figures(kv_bodies.write_model(Path(folder) / "model"))
        bars = [*index_figures(), decision, *tokens, never_seen]
    met = publish(
        asked.out, "Parts of routing by cache",
        how="Written by `python -m bench.kv_speed`: CPU time of the parts by themselves, in one process, medians of "
            f"several rounds. Events have blocks of {SIZE} tokens and go through everything behind the socket.",
        tables=[beside, letters], bars=bars,
    )  # fmt: skip
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
