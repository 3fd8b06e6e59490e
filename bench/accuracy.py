"""Do benchmarks count right? One target that logs what it really did, measured by several tools in turn.

Each answer follows a script: a role chunk after 5 ms, the first token after 100 to 190 ms, 15 more at gaps of 20 ms,
then usage. Of every ten requests one is refused with 500, and one is cut off after three tokens without an end. What
is true is known twice: by the script, and by the target's own log of when a request was complete and when each piece
left. Loads that bring out every other figure of `infera bench` follow (accuracy_ours.py). `make bench-accuracy` runs
it all and writes bench/results/accuracy.md; a tool that is not installed is shown as NOT MEASURED. `python -m
bench.accuracy --ours` leaves the other tools out and writes nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import accuracy_ours as ours
from bench import accuracy_tools as tools
from bench import accuracy_truth as truth
from bench import machine
from bench.accuracy_loads import REFUSED, ROLE, Answer, Step, chunk, delta
from bench.accuracy_truth import Seen
from tests.support.timed_target import DONE, Got, Script, TimedTarget

RESULT = Path(__file__).with_name("results") / "accuracy.md"
PROMPT, TOKENS, GAP, ROLE_AT = 10, 16, 0.020, 0.005
CALM, TRIES = 0.002, 5     # a run in which the target wrote later than this (s, p95) is made again, so often
FIGURES = ("TTFT", "TPOT", "ITL", "ICL", "E2EL")
RATES = ("answers/s", "output tokens/s", "open requests, mean")
KINDS = {"http_500": "refused with 500", "truncated": "cut off"}
EXPLAINED = {
    "vllm TTFT": "It takes the first chunk with `choices` for the first token; here that is the role chunk.",
    "vllm TPOT": "Its TPOT is (end - first) / (tokens - 1), and its first is the role chunk: the wait for the first "
                 "token is spread over the others.",
    "vllm ITL": "The gap between the role chunk and the first token counts as one between tokens, and so does the one "
                "before the chunk that ends the answer.",
    "vllm counts": "A stream that ends early is a success to it, so the cut answers are among its successes, with the "
                   "tokens it re-counts in their text.",
    "vllm rates": "The cut answers are in it.", "aiperf rates": "The cut answers are in it.",
    "aiperf counts": "A stream that ends early is a success to it, too.",
    "aiperf TPOT": "It averages over cut answers as well.",
    "aiperf ITL": "Its inter-token latency is the mean of each request; ours and vLLM's is over all gaps.",
    "aiperf E2EL": "Its request latency ends with the last response it read, and cut answers are in it.",
    "aiperf TTFT": "Cut answers, successes to it, are in it.",
    "vllm E2EL": "Cut answers, successes to it, are in it and end early.",
}


USAGE = chunk([], usage={"prompt_tokens": PROMPT, "completion_tokens": TOKENS, "total_tokens": PROMPT + TOKENS})


def answer(number: int) -> Answer:
    """The answer to request `number`."""
    kind = number % 10
    if kind == 3:
        return Answer(steps=[Step(0.0, REFUSED)], outcome="http_500")
    first = 0.1 + 0.01 * kind
    steps = [Step(ROLE_AT, ROLE), *(Step(first + GAP * n, delta({"content": f" w{n}"}), 1) for n in range(TOKENS))]
    if kind == 7:
        return Answer(steps=steps[:4], outcome="truncated")     # the transfer ends as HTTP says, the answer does not
    return Answer(steps=[*steps, Step(steps[-1].at, delta({}, "stop") + USAGE + DONE)], prompt=PROMPT)


def script(got: Got) -> Script:
    """What the target says to a request."""
    return answer(got.number).script()


class Truth(NamedTuple):
    """What is true of a run."""

    script: list[Seen]
    log: list[Seen]


def true_of(got: Sequence[Got]) -> Truth:
    """By the script, of which nobody needs to know when each request came, and by the log."""
    return Truth(
        [answer(one.number).foreseen(0.0) for one in got],
        [answer(one.number).seen(one.at, one.writes) for one in got])


class Measured(NamedTuple):
    """One tool's run: what is true and what it said; None where it did not run, and why."""

    tool: str
    version: str
    truth: Truth | None
    said: tools.Said | None
    why: str = ""
    late: float = 0.0


def measure(tool: str, run: Callable[[str, Path], tools.Said]) -> Measured:
    """Let a tool loose on a fresh target, again where the machine itself was held up meanwhile."""
    found = _once(tool, run)
    for _ in range(TRIES - 1):
        if found.late <= CALM:
            break
        again = _once(tool, run)
        found = min(found, again, key=lambda one: one.late)
    return found


def _once(tool: str, run: Callable[[str, Path], tools.Said]) -> Measured:
    with tempfile.TemporaryDirectory() as folder, TimedTarget(script) as target:
        try:
            said = run(target.url, Path(folder))
        except tools.CannotMeasure as reason:
            return Measured(tool, "", None, None, str(reason))
        asked = [got for got in target.got if got.path.endswith("/chat/completions") and got.writes]
        late = truth.lateness((one.at, one.writes, script(one).steps) for one in asked)
        return Measured(tool, said.version, true_of(asked), said, late=late)


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────
def rows(one: Measured) -> list[str]:
    """The lines of one tool."""
    if one.truth is None or one.said is None:
        return [f"| {one.tool} | NOT MEASURED: {' '.join(one.why.split())} | | | | | |"]
    return [f"| {one.tool} | {cells} |" for cells in _cells(one.tool, one.truth, one.said)]


def _cells(tool: str, true: Truth, said: tools.Said) -> Iterator[str]:
    script, log = truth.times(true.script), truth.times(true.log)
    for kind in FIGURES:
        for statistic in tools.STATISTICS:
            measured = said.times.get((kind, statistic))
            if measured is not None:
                foreseen, value = (truth.statistic(pool[kind.lower()], statistic) * 1e3 for pool in (script, log))
                fine = ours.right_both(foreseen, value, measured, statistic)
                mark = _mark(tool, kind, right=fine)
                yield f"{kind} {statistic}, ms | {foreseen:.1f} | {value:.1f} | {measured:.1f} | {mark}"
    happened = truth.rates(true.log, {})
    for name in RATES:
        rate = said.rates.get(name)
        if rate is not None:
            mark = _mark(tool, "rates", right=abs(rate - happened[name]) <= ours.SHARE * happened[name])
            yield f"{name} | - | {happened[name]:.2f} | {rate:.2f} | {mark}"
    foreseen_counts, counts = truth.counts(true.script), truth.counts(true.log)
    for kind, number in counts.items():
        name = KINDS.get(kind, kind)
        count = said.counts.get(name)
        if count is not None:
            planned = foreseen_counts[kind]
            mark = _mark(tool, "counts", right=count == number == planned)
            yield f"{name} | {planned:,} | {number:,} | {count:,} | {mark}"


def _mark(tool: str, kind: str, *, right: bool) -> str:
    return "yes | " if right else f"no | {EXPLAINED.get(f'{tool} {kind}', '')}"


def page(measured: Sequence[Measured], played: Sequence[ours.Played]) -> str:
    """The tables."""
    about = machine.describe()
    versions = ", ".join(f"{one.tool} {one.version}" for one in measured if one.version)
    how = (
        f"{tools.REQUESTS} requests, {tools.CALLERS} at a time, to a target with scripted timing (accuracy.py says "
        "how). One answer in ten is refused, one is cut off. *Script* is what the target was told to do, *log* what "
        "it wrote down of that very run. Mean, p50 and p90 are right within 1 % or 2 ms of both, p99 and max of the "
        "log, a rate within 1 % of the log, a count when it is exact. A run in which the machine kept the target "
        f"itself from writing in time (p95 over {CALM * 1e3:g} ms) is made again, up to {TRIES} times, with every tool."
    )
    place = f"{about['processor']}, {about['cores']} cores, Linux {about['kernel']}, Python {about['python']}"
    return "\n".join([
        "# Accuracy", "", how, "",
        "| tool | figure | script | log | said | right | why not |", "|---|---|---|---|---|---|---|",
        *(row for one in measured for row in rows(one)), "", *ours.page(played), f"{versions}; {place}.", "",
    ])


def ours_is_right(measured: Sequence[Measured]) -> bool:
    """Whether every line of our own tool says yes."""
    return all("| no |" not in row and "NOT MEASURED" not in row for one in measured if one.tool == "infera"
               for row in rows(one))


def main() -> int:
    """Measure with every tool, and ours on every load; 1 when ours is wrong anywhere."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description=__doc__.splitlines()[0])
    parser.add_argument("--ours", action="store_true", help="infera bench alone; print, and write nothing")
    only_ours = parser.parse_args().ours
    measured = [measure("infera", tools.infera)]
    if not only_ours:
        measured += [
            measure("vllm", lambda url, folder: tools.vllm(url, folder, os.environ.get("VLLM_PYTHON"))),
            measure("aiperf", lambda url, folder: tools.aiperf(url, folder, os.environ.get("TOOLS_PYTHON"))),
        ]
    played = ours.every(CALM, TRIES)
    text = page(measured, played)
    print(text)
    if not only_ours:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(text, encoding="utf-8")
    return 0 if ours_is_right(measured) and ours.all_right(played) else 1


if __name__ == "__main__":
    sys.exit(main())
