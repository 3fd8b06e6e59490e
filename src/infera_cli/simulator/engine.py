"""A continuously batching engine, event-driven: equal decode steps are taken many at a time, in closed form.

The engine works in steps, as vLLM's scheduler does (engines §1, §7). A step lasts `step_ms`, plus
`sequence_ms` for each sequence that decodes, plus the prompt tokens it computes at `prefill_rate`. Every
decoding sequence gains one token a step; a prompt that completes gains its first. While nobody joins or
leaves, steps are alike, so k of them are one piece of arithmetic: cost depends on the number of requests,
not of tokens. Times go in and out as seconds and are whole nanoseconds inside, so the same requests give
the same answer however often the clock is asked.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from infera_cli.simulator.batch import Growth, Seat
from infera_cli.simulator.cache import BlockCache

_NS = 1_000_000_000
Kind = Literal["first", "tokens", "finished", "preempted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How fast and how large an engine is. A `prefill_rate` (tokens a second) of 0 makes prompts cost
    nothing."""

    prefill_rate: float = 20_000.0
    step_ms: float = 8.0
    sequence_ms: float = 0.1
    max_num_seqs: int = 128
    max_batched_tokens: int = 8192
    block_size: int = 16
    blocks: int = 8192

    def __post_init__(self) -> None:
        if min(self.prefill_rate, self.step_ms, self.sequence_ms) < 0:
            raise ValueError("rates and times cannot be negative")
        if min(self.max_num_seqs, self.block_size, self.blocks) < 1:
            raise ValueError("an engine needs at least one seat, one block, and one token a block")
        if self.max_batched_tokens <= self.max_num_seqs:
            raise ValueError("max_batched_tokens must exceed max_num_seqs, or prompts starve")

    @property
    def tokens(self) -> int:
        """Tokens that fit into the KV cache."""
        return self.blocks * self.block_size

    def at_speed(self, factor: float) -> Profile:
        """The same engine, `factor` times as fast."""
        return replace(self, prefill_rate=self.prefill_rate * factor, step_ms=self.step_ms / factor,
                       sequence_ms=self.sequence_ms / factor)


class Happening(msgspec.Struct, frozen=True, gc=False):
    """Something that came to pass at `time` (seconds): `tokens` are new ones since this request's last
    report, `cached` (on "first") the prompt tokens found in the cache."""

    kind: Kind
    id: str
    time: float
    tokens: int = 0
    cached: int = 0


@dataclass(slots=True)
class Counters:
    """Running totals, in requests or tokens, under vLLM's meanings (engines §1.7)."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    finished: int = 0
    aborted: int = 0


class EngineModel:
    """One engine. `submit` and `abort` whenever something comes, `advance` to learn what happened until
    now."""

    def __init__(self, profile: Profile, *, record: bool = False) -> None:
        self.profile = profile
        self.cache = BlockCache(profile.blocks, record=record)
        self.counters = Counters()
        self._token_ns = _NS / profile.prefill_rate if profile.prefill_rate else 0.0
        self._step_ns = round(profile.step_ms * 1e6)
        self._sequence_ns = round(profile.sequence_ms * 1e6)
        self._here: dict[str, Seat] = {}
        self._waiting: deque[Seat] = deque()
        self._running: dict[str, Seat] = {}                    # in order of admission
        self._prefilling: list[Seat] = []
        self._watched: dict[str, Seat] = {}                    # decoding, and token by token of interest
        self._finishing: list[tuple[int, int, Seat]] = []      # heap by (step, order), some stale
        self._growth = Growth(profile.block_size)
        self._loose: list[int] = []                            # filled by decoding, given out on leaving
        self._steps = 0
        self._order = 0
        self._clock = 0                                        # ns: begin of the step, or end of the last
        self._length: int | None = None                        # ns: length of the step in progress
        self._fresh = False                                    # who may be seated has changed since then
        self._out: list[Happening] = []

    # ── what can be read at any time ─────────────────────────────────────────────────────────────────
    @property
    def running(self) -> int:
        """Sequences that hold a seat."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences that wait for one."""
        return len(self._waiting)

    @property
    def kv_usage(self) -> float:
        """Share of the blocks in use, 0…1."""
        return self.cache.used / self.cache.capacity

    def next_event_time(self) -> float | None:
        """When `advance` will have news, in seconds; None while idle.

        With a watched sequence or a prompt in work that is the end of the step, else the first finish.
        """
        if self._out:
            return self._clock / _NS
        if self._length is None and not self._begin():
            return None
        length = self._length or 0
        steps = 1 if self._watched or self._prefilling else self._alike()
        return (self._clock + steps * length) / _NS

    # ── what can be done to it ───────────────────────────────────────────────────────────────────────
    def submit(
        self, request: str, prompt: int, output: int, chain: Sequence[int], now: float, *,
        watched: bool = False,
    ) -> None:
        """Ask for `output` tokens after a prompt of `prompt` tokens.

        `chain` names the full blocks of prompt and answer; a shorter one leaves the rest uncached. Requests
        of the same instant may share a step. `watched` ones report every step, others only their first
        token and their end. Raises ValueError when the request can never fit or its id is taken.
        """
        if prompt < 1 or output < 1:
            raise ValueError("a request has at least one prompt token and one output token")
        if prompt + output > self.profile.tokens:
            raise ValueError(f"{prompt + output} tokens do not fit into a KV cache of {self.profile.tokens}")
        if request in self._here:
            raise ValueError(f"request {request!r} is already here")
        at = round(now * _NS)
        self._run(at, eager=False)
        if self._length is None:
            self._clock = max(self._clock, at)
        self._order += 1
        self._fresh = True
        seat = self._here[request] = Seat(
            request, self._order, prompt, output, chain, watched=watched)
        self._waiting.append(seat)

    def advance(self, now: float) -> list[Happening]:
        """All that happened until `now`, in order; times before the last call change nothing."""
        self._run(round(now * _NS), eager=True)
        for seat in self._watched.values():
            self._report("tokens", seat, seat.generated(self._steps))
        out, self._out = self._out, []
        return out

    def abort(self, request: str, now: float) -> int | None:
        """Drop a request at once; returns the tokens it had generated, None when it is not here (any
        more)."""
        self._run(round(now * _NS), eager=False)
        seat = self._here.pop(request, None)
        if seat is None:
            return None
        if request in self._running:
            self._leave(seat)
        else:
            self._waiting.remove(seat)
        self._fresh = True
        self.counters.aborted += 1
        return seat.generated(self._steps)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────
    def _run(self, now: int, *, eager: bool) -> None:
        """Complete the steps that end by `now`; only `eager` begins one exactly at `now`."""
        while True:
            if self._length is None and ((not eager and self._clock >= now) or not self._begin()):
                return
            length = self._length or 0
            if self._clock + length > now:
                return
            steps = 1 if self._prefilling else self._alike((now - self._clock) // length if length else None)
            self._complete(steps, length)

    def _alike(self, limit: int | None = None) -> int:
        """How many steps from here will be like the one in progress: until one finishes or blocks run out."""
        if self._fresh or not self._growth.sequences:
            return 1
        heap = self._finishing
        while heap[0][2].finish != heap[0][0]:
            heapq.heappop(heap)
        steps = heap[0][0] - self._steps
        if limit is not None and limit < steps:
            steps = limit
        if steps <= 1:
            return 1
        return 1 + self._growth.steps_within(self.cache.free, self._steps + 2, steps - 1)

    def _begin(self) -> bool:
        """Compose the next step at the clock; False when there is nothing to do."""
        preempted = self._grow()
        self._fresh = preempted        # who was sent away may come back one step later
        prefilling, decoding = self._prefilling, self._growth.sequences
        length = self._step_ns + self._sequence_ns * decoding
        if prefilling or (self._waiting and not preempted):
            budget, tokens = self.profile.max_batched_tokens - decoding, 0
            for seat in prefilling:
                tokens += self._chunk(seat, budget - tokens)
            while not preempted and self._waiting and tokens < budget and self._admit():
                tokens += self._chunk(prefilling[-1], budget - tokens)
            length += round(self._token_ns * tokens)
        if not self._running:
            return False
        self._length = length
        return True

    def _grow(self) -> bool:
        """Blocks for the tokens that the next step writes; the last admitted make room when there are
        none."""
        preempted = False
        while need := self._growth.at(self._steps + 1):
            if need <= self.cache.free:
                self._loose += self.cache.take(need)
                break
            self._preempt(next(reversed(self._running.values())))
            preempted = True
        return preempted

    def _admit(self) -> bool:
        """Seat the first in the queue if a seat and blocks are free."""
        if len(self._running) >= self.profile.max_num_seqs:
            return False
        seat, size = self._waiting[0], self.profile.block_size
        length = seat.prompt + seat.done
        found = self.cache.find(seat.chain, (length - 1) // size)   # one is always computed (engines §7)
        need = -(-length // size) - len(found)
        if need + self.cache.idle(found) > self.cache.free:
            return False
        self._waiting.popleft()
        self.cache.acquire(found)
        seat.sit(found + self.cache.take(need), length, len(found), size)
        if not seat.admitted:
            seat.admitted, seat.cached = True, seat.filled
            self.counters.prefix_queries += seat.prompt
            self.counters.prefix_hits += seat.filled
            self.counters.prompt_tokens += seat.prompt
        self._running[seat.id] = seat
        self._prefilling.append(seat)
        return True

    def _chunk(self, seat: Seat, budget: int) -> int:
        """Schedule the next piece of a prompt; its full blocks can be found from now on, as in vLLM."""
        seat.chunk = min(budget, seat.length - seat.filled)
        self._name(seat, seat.filled + seat.chunk)
        return seat.chunk

    def _name(self, seat: Seat, tokens: int) -> None:
        full = min(tokens // self.profile.block_size, len(seat.chain))
        if full > seat.named:
            self.cache.name(seat.blocks[seat.named : full], seat.chain, seat.named, seat.id)
            seat.named = full

    def _complete(self, steps: int, length: int) -> None:
        """`steps` equal steps are over."""
        if steps > 1 and (need := self._growth.between(self._steps + 2, steps - 1)):
            self._loose += self.cache.take(need)
        self._steps += steps
        self._clock += steps * length
        self._length = None
        self.counters.generation_tokens += steps * self._growth.sequences
        heap = self._finishing
        while heap and heap[0][0] <= self._steps:
            step, _, seat = heapq.heappop(heap)
            if seat.finish == step:
                self._finish(seat)
        if self._prefilling:
            self._prefilled()

    def _prefilled(self) -> None:
        """A step with prompt pieces is over: those that are complete have their first (or next) token."""
        for seat in self._prefilling:
            seat.filled += seat.chunk
            seat.chunk = 0
        done = [seat for seat in self._prefilling if seat.filled == seat.length]
        self._prefilling = [seat for seat in self._prefilling if seat.filled < seat.length]
        for seat in done:
            seat.done += 1
            self.counters.generation_tokens += 1
            if seat.done == 1:
                self._report("first", seat, 1)
            if seat.done == seat.output:
                self._finish(seat)
            else:
                self._decode(seat)

    def _decode(self, seat: Seat) -> None:
        seat.join(self._steps)
        self._growth.add(seat)
        heapq.heappush(self._finishing, (seat.finish, seat.order, seat))
        if seat.watched:
            self._watched[seat.id] = seat

    # ── leaving ──────────────────────────────────────────────────────────────────────────────────────
    def _finish(self, seat: Seat) -> None:
        self._leave(seat)
        del self._here[seat.id]
        self.counters.finished += 1
        self._report("finished", seat, seat.output)

    def _preempt(self, seat: Seat) -> None:
        """Take the seat away; what was generated stays, its keys and values are computed again later."""
        self._leave(seat)
        self._waiting.appendleft(seat)
        self.counters.preemptions += 1
        self._out.append(Happening("preempted", seat.id, self._clock / _NS))

    def _leave(self, seat: Seat) -> None:
        """Give the blocks back; full ones stay findable, those that decoding filled too."""
        del self._running[seat.id]
        if seat.decoding:
            self._growth.remove(seat)
            self._watched.pop(seat.id, None)
            held = seat.stand(self._steps)
            ahead = 0 if self._length is None else 1       # the step in progress has its blocks already
            extra = -(-(held + ahead) // self.profile.block_size) - len(seat.blocks)
            if extra:
                seat.blocks += self._loose[-extra:]
                del self._loose[-extra:]
            self._name(seat, held)
        elif seat in self._prefilling:
            self._prefilling.remove(seat)
        self.cache.release(seat.blocks, seat.chain[: seat.named])
        seat.blocks = []

    def _report(self, kind: Kind, seat: Seat, generated: int) -> None:
        new = generated - seat.reported
        if new or kind == "finished":
            seat.reported = generated
            self._out.append(Happening(kind, seat.id, self._clock / _NS, new, seat.cached))
