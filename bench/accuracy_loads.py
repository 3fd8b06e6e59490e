"""The loads of which `infera bench` must get every figure right, and what is true of each: by its script, and by the
log of the target that played it.

*open*: more arrivals than places, so requests queue; the answers think before they speak, several tokens a chunk,
after a head that waits, and end with a tail; some fail in four ways. *connections*: a TLS handshake that takes its
time, on two of three requests. *held*: the load generator itself is stopped and goes on, so it sends late.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench.accuracy_truth import OK, Seen, Token, due, starts
from tests.support.timed_target import DONE, Got, Script, TimedTarget, event


class Step(NamedTuple):
    """A write of an answer, at an instant after the request; with tokens or without."""

    at: float
    data: bytes
    amount: int = 0
    visible: bool = True


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A whole answer; its first step brings the head, its last is its end."""

    steps: Sequence[Step]
    outcome: str = OK
    prompt: int = 10
    cached: int = 0
    split: tuple[tuple[str, float], ...] = ()
    closes: bool = False

    def script(self) -> Script:
        """For the target."""
        headers = {"Connection": "close"} if self.closes else {}
        if self.split:
            headers["Server-Timing"] = ", ".join(f"{name};dur={seconds * 1e3:g}" for name, seconds in self.split)
        steps = [(step.at, step.data) for step in self.steps]
        if self.outcome == "http_500":
            return Script(steps, status=500, kind="application/json", headers=headers)
        return Script(steps, headers=headers)

    def seen(self, sent: float, writes: Sequence[float]) -> Seen:
        """What was seen of it, when its steps were written at these instants."""
        tokens = [
            Token(at, step.amount, step.visible) for at, step in zip(writes, self.steps, strict=True) if step.amount
        ]
        return Seen(
            sent=sent, end=writes[-1], outcome=self.outcome, head=writes[0], tokens=tokens, prompt=self.prompt,
            cached=self.cached, split=dict(self.split))

    def foreseen(self, sent: float) -> Seen:
        """The same, if every step is written when the script says."""
        return self.seen(sent, [sent + step.at for step in self.steps])


@dataclass(frozen=True, kw_only=True)
class Load:
    """One load: how the target answers the request of a number, what `infera bench` is asked, what is true of it, and
    which latencies it is about. `script` is by the script alone, `log` by what the target wrote down; both get the
    target, the first for what it alone can know: which request took which connection."""

    name: str
    about: str
    latencies: tuple[str, ...]
    arguments: tuple[str, ...]
    answer: Callable[[int], Answer]
    script: Callable[[TimedTarget | None], list[Seen]]
    log: Callable[[TimedTarget], list[Seen]]
    limits: tuple[str, ...] = ()
    whole: bool = True      # lengths, limits and failures as well
    queued: tuple[str, ...] = ()    # latencies that hold a wait for what no script sets to the millisecond
    placed: bool = True     # the script alone knows when each request is sent
    asked: float | None = None
    hold: Callable[[int], float] | None = None
    meanwhile: Callable[[subprocess.Popen[bytes], TimedTarget], None] | None = None

    def foreseen(self) -> list[Seen]:
        """By the script of a load that needs no target for it."""
        return self.script(None)

    def reply(self, got: Got) -> Script:
        """What the target says."""
        return self.answer(place(got)).script()


def place(got: Got) -> int:
    """Which request of the load it is: by its session where it has one (`bench-7-…`), else as they came."""
    _word, _dash, rest = got.headers.get("x-session-id", "").partition("-")
    number = rest.partition("-")[0]
    return int(number) if number.isdigit() else got.number


# ── how an answer is made ────────────────────────────────────────────────────────────────────────────
def chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
    """A chunk with all members that an engine sends."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m"}
    return event({**head, "choices": choices, **more})


def delta(said: dict[str, str], finish: str | None = None, **more: Any) -> bytes:
    """A chunk of one choice."""
    return chunk([{"index": 0, "delta": said, "logprobs": None, "finish_reason": finish}], **more)


def usage(prompt: int, output: int, cached: int) -> dict[str, Any]:
    """The usage member of a chunk."""
    return {
        "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


ROLE = delta({"role": "assistant", "content": ""})
REFUSED = b'{"error": {"message": "refused"}}'
FAILED = event({"error": {"message": "out of memory", "type": "server_error", "code": 500}})


def answer(
    head: float, first: float, gap: float, chunks: Sequence[tuple[int, bool]], tail: float, *, prompt: int = 10,
    cached: int = 0, **more: Any,
) -> Answer:
    """Role at `head`, then chunks of (tokens, whether visible), usage in each, and the end `tail` after the last."""
    told = list(accumulate(amount for amount, _visible in chunks))
    tokens = [
        Step(
            first + gap * number,
            delta({"content" if visible else "reasoning_content": " w" * amount},
                  usage=usage(prompt, told[number], cached)),
            amount, visible)
        for number, (amount, visible) in enumerate(chunks)
    ]
    end = delta({}, "stop") + chunk([], usage=usage(prompt, told[-1], cached)) + DONE
    steps = [Step(head, ROLE), *tokens, Step(tokens[-1].at + tail, end)]
    return Answer(steps=steps, prompt=prompt, cached=cached, **more)


# ── open: more arrivals than places ──────────────────────────────────────────────────────────────────
COUNT, RATE, PLACES, SEED = 120, 7.5, 4, 36     # of forty seeds one whose queue stays long: a steady part to speak of
LENGTH = 16     # words of a prompt
FAILURES = {7: "http_500", 22: "truncated", 37: "error_event", 52: "empty"}     # of every sixty


def thoughtful(number: int) -> Answer:
    """Answer `number` of the open load."""
    chunks = [(3, False)] * (2 + number % 3) + [(2, True)] * (4 + number % 4) + [(1, True)] * 3
    if number % 12 == 5:
        chunks = [(1, True)]     # TPOT knows no such answer, a limit on TPOT counts it as 0
    head = 0.030 + 0.006 * (number % 5)
    made = answer(
        head, 0.110 + 0.020 * (number % 7), 0.020 + 0.004 * (number % 3), chunks, 0.040 + 0.015 * (number % 3),
        prompt=10 + number % 4, cached=3 + number % 2,
        split=(("queue", 0.004 + 0.001 * (number % 3)), ("pick", 0.001), ("upstream", head - 0.012)))
    failure = FAILURES.get(number % 60, OK)
    steps = {
        OK: made.steps, "http_500": [Step(0.040, REFUSED)], "truncated": made.steps[:4],
        "error_event": [*made.steps[:3], Step(made.steps[2].at + 0.030, FAILED)],
        "empty": [made.steps[0], Step(0.090, delta({}, "stop") + DONE)],
    }[failure]
    return replace(made, steps=steps, outcome=failure)


@cache
def plan() -> tuple[float, ...]:
    """When the arrivals of a Poisson process are due, scaled so that COUNT + 1 of them fill the time."""
    dice = Random(SEED)
    gaps = [dice.expovariate(1.0) for _ in range(COUNT + 1)]
    return tuple(at * COUNT / sum(gaps) / RATE for at in accumulate(gaps[:-1]))


def queued(_target: TimedTarget | None = None) -> list[Seen]:
    """The open load by its script: places are taken and given back as the answers last."""
    answers = [thoughtful(number) for number in range(COUNT)]
    begins = starts(plan(), [one.steps[-1].at for one in answers], PLACES)
    return [
        replace(one.foreseen(begin), scheduled=at, due=begin)
        for one, at, begin in zip(answers, plan(), begins, strict=True)
    ]


def queued_log(target: TimedTarget) -> list[Seen]:
    """The open load by the log."""
    got = _from_plan(target, plan(), thoughtful)
    return [
        replace(one, due=free)
        for one, free in zip(got, due(plan(), [one.end for one in got], PLACES), strict=True)
    ]


def _from_plan(target: TimedTarget, offsets: Sequence[float], made: Callable[[int], Answer]) -> list[Seen]:
    """What the log says of requests that are due at these offsets. Nobody tells the target when the run began: it
    began so that the most punctual request came on time."""
    got = sorted(target.got, key=place)
    begin = min(one.at - at for one, at in zip(got, offsets, strict=True))
    return [
        replace(made(number).seen(one.at - begin, [written - begin for written in one.writes]), scheduled=at)
        for number, (one, at) in enumerate(zip(got, offsets, strict=True))
    ]


# ── held: the load generator is stopped ──────────────────────────────────────────────────────────────
SLOW_COUNT, SLOW_RATE, BEFORE = 20, 2.0, 0.100
LATE = {4: 0.150, 9: 0.080, 14: 0.200, 17: 0.120}      # by request (no two in a row): so many seconds it is sent late


def short(number: int) -> Answer:
    """Answers that are over long before the next request."""
    return answer(0.020, 0.060 + 0.010 * (number % 3), 0.050, [(1, True)] * 3, 0.020)


def stop_and_go(process: subprocess.Popen[bytes], target: TimedTarget) -> None:
    """Stop the load generator, all of its processes, while nothing is open; go on when the next request is late."""
    for number, late in LATE.items():
        while len(target.got) < number:
            if process.poll() is not None:
                return
            time.sleep(0.005)
        next_due = target.got[number - 1].at + 1 / SLOW_RATE
        _sleep_until(next_due - BEFORE)
        family = descent(process.pid)
        try:
            for pid in family:
                os.kill(pid, signal.SIGSTOP)
            _sleep_until(next_due + late)
        finally:
            for pid in family:
                os.kill(pid, signal.SIGCONT)


def descent(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in tasks.read_text().split():
            found += descent(int(child))
    return found


def _sleep_until(instant: float) -> None:
    time.sleep(max(0.0, instant - time.perf_counter()))


def held(_target: TimedTarget | None = None) -> list[Seen]:
    """By the script of stopping."""
    offsets = [number / SLOW_RATE for number in range(SLOW_COUNT)]
    return [
        replace(short(number).foreseen(at + LATE.get(number, 0.0)), scheduled=at, due=at)
        for number, at in enumerate(offsets)
    ]


def held_log(target: TimedTarget) -> list[Seen]:
    """By the log."""
    got = _from_plan(target, [number / SLOW_RATE for number in range(SLOW_COUNT)], short)
    return [replace(one, due=one.scheduled) for one in got]


# ── connections: handshakes that take their time ─────────────────────────────────────────────────────
CALLERS, NEW = 3, 36


def handshake(number: int) -> float:
    """How long connection `number` waits for its handshake."""
    return 0.600 + 0.025 * (number % 5)


def closing(number: int) -> Answer:
    """Two answers of three close their connection."""
    return answer(0.020, 0.060, 0.020, [(1, True)] * 3, 0.010, closes=number % 3 != 0, split=(("upstream", 0.015),))


def connected(target: TimedTarget | None, *, by_log: bool) -> list[Seen]:
    """The first request of a connection was sent when that was asked for, the others when they came."""
    assert target is not None
    found: list[Seen] = []
    known: set[int] = set()
    for one in target.got:
        dial, first = target.dials[one.peer], one.peer not in known
        known.add(one.peer)
        made = closing(one.number)
        if by_log:
            sent = dial.accepted if first else one.at
            found.append(replace(made.seen(sent, one.writes), connected=dial.ready if first else sent))
        else:
            wait = handshake(dial.number) if first else 0.0
            found.append(replace(made.foreseen(wait), sent=0.0, connected=wait))
    return found


COMMON = ("--isl", str(LENGTH), "--osl", "16", "--allow-degraded", "--max-error-rate", "1", "--per-chunk-usage")
LOADS = (
    Load(
        name="open",
        about=f"{COUNT} requests at {RATE:g}/s by Poisson, seed {SEED}, at most {PLACES} open; answers that think, in "
              "chunks of 1 to 3 tokens, with a head that waits, a tail, and the timing of a router; eight fail",
        latencies=("ttft", "ttft_sched", "tpot", "tpot_adj", "itl", "icl", "e2el", "e2el_sched", "ttfo", "head",
                   "tail", "queue", "lag"),
        arguments=("--request-rate", str(RATE), "-n", str(COUNT), "--max-concurrency", str(PLACES),
                   "--seed", str(SEED), "--sessions"),
        answer=thoughtful, script=queued, log=queued_log, asked=RATE,
        queued=("queue", "ttft_sched", "e2el_sched"),
        limits=("ttft", "ttft_sched", "tpot", "e2el", "e2el_sched"),
    ),
    Load(
        name="held",
        about=f"{SLOW_COUNT} requests at {SLOW_RATE:g}/s, evenly; the load generator is stopped before {len(LATE)} of "
              f"them and goes on {min(LATE.values()) * 1e3:g} to {max(LATE.values()) * 1e3:g} ms late",
        latencies=("lag", "ttft", "ttft_sched", "e2el", "e2el_sched"), queued=("lag", "ttft_sched", "e2el_sched"),
        arguments=("--request-rate", str(SLOW_RATE), "--burstiness", "inf", "-n", str(SLOW_COUNT),
                   "--sessions"),
        answer=short, script=held, log=held_log, whole=False, asked=SLOW_RATE, meanwhile=stop_and_go,
    ),
    Load(
        name="connections",
        about=f"{NEW} requests over TLS, {CALLERS} at a time; two of three come over a new connection, whose handshake "
              "is made to take 600 to 700 ms",
        latencies=("connect", "head", "ttft", "e2el"),
        arguments=("-c", str(CALLERS), "-n", str(NEW)),
        answer=closing, script=lambda target: connected(target, by_log=False), placed=False,
        log=lambda target: connected(target, by_log=True), whole=False, hold=handshake,
    ),
)
