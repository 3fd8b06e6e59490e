"""Whether a run's numbers can be trusted, and the exit code that follows (rulings 5, 29; bench-and-cli §0.5).

INVALID: the load generator was itself the bottleneck. A run with too many failures is not invalid, it
failed: its numbers are true.
"""

from __future__ import annotations

import msgspec

from infera_cli.workload.distribution import enough
from infera_cli.workload.figures import Figures, achieved, late
from infera_cli.workload.gates import Gate, Seen, hits

LAG_FLOOR = 0.010           # seconds
LAG_SHARE = 0.05            # of the TTFT median
ACHIEVED = 0.98
BUSY = 0.90                 # of one core
WARM_HITS = 0.01            # cached share of the input that makes a cold run suspicious
COLD_SHARE = 0.5            # cached share of the input that a warm run should reach
CHUNKY = 1.05               # tokens per chunk
TOGETHER = 0.05             # of the chunks that came with the one before, which makes ICL a matter of reads
PAST = "past the router: "  # before what is said of the half that --direct measures

EXIT_OK, EXIT_FAILED, EXIT_INVALID, EXIT_INTERRUPTED = 0, 1, 4, 130


class Circumstances(msgspec.Struct, frozen=True):
    """What the figures alone do not say. `cpu` is the busiest load process's share of a core."""

    cpu: float = 0.0
    interrupted: bool = False
    max_error_rate: float = 0.0
    allow_degraded: bool = False
    cold: bool = True
    warm: bool = False          # the whole plan was sent once before
    shared: bool = False        # the dataset itself repeats prefixes
    broken: str = ""            # a load process died: what is known of it
    rows: int | None = None     # how many different items the dataset has; None: any number
    halved: bool = False        # every second request went past the router
    gates: tuple[Gate, ...] = ()
    left_out: int = 0           # rows of a trace that asked for nothing
    planned: int | None = None  # arrivals in the plan, of both halves with --direct
    asked: int | None = None    # arrivals asked for, where a trace may have fewer
    engine_hits: float | None = None    # share of prompts that engines found cached, by their own counters


class Verdict(msgspec.Struct, frozen=True):
    """VALID, INVALID or DEGRADED (invalid, but allowed); what is wrong; what to look at; the exit code; which of the
    limits that were asked for (`--gate`) it did not keep."""

    status: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    exit_code: int
    missed: tuple[str, ...] = ()


def error_rate(figures: Figures) -> float:
    """Failures over what was judged; requests that the end of the run cut off are not."""
    judged = figures.counts.ok + figures.counts.failed
    return figures.counts.failed / judged if judged else 0.0


def judge(figures: Figures, around: Circumstances, direct: Figures | None = None) -> Verdict:
    """The verdict on one run; `direct` are the figures of the half that went past the router."""
    reasons = (*_reasons(figures, around, direct), *(_load_reasons(direct, PAST) if direct is not None else ()))
    bad = "DEGRADED" if around.allow_degraded else "INVALID"
    status = bad if reasons else "VALID"
    seen = Seen(figures, around.cpu, _achieved(figures, around, direct), around.engine_hits)
    missed = tuple(said for gate in around.gates if (said := gate.missed(seen)))
    code = _exit_code([figures] if direct is None else [figures, direct], around, status)
    if missed and code in (EXIT_OK, EXIT_INVALID):
        code = EXIT_FAILED
    warnings = [*_warnings(figures, around), *(_oddities(direct, PAST) if direct is not None else ())]
    return Verdict(status, reasons, tuple(warnings), code, missed)


def _exit_code(halves: list[Figures], around: Circumstances, status: str) -> int:
    """Ctrl-C first; then failures, which are facts whatever the timing; then validity."""
    if around.interrupted:
        return EXIT_INTERRUPTED
    nothing = sum(half.counts.ok + half.counts.failed + half.counts.incomplete for half in halves) == 0
    if around.broken or nothing or any(error_rate(half) > around.max_error_rate + 1e-12 for half in halves):
        return EXIT_FAILED
    return EXIT_INVALID if status == "INVALID" else EXIT_OK


def lag_limit(figures: Figures) -> float:
    """The send lag p99 that a run may have: max(10 ms, 5 % of TTFT p50)."""
    ttft = figures.latency.get("ttft")
    return max(LAG_FLOOR, LAG_SHARE * ttft.p50 if ttft else 0.0)


def _reasons(figures: Figures, around: Circumstances, direct: Figures | None) -> list[str]:
    found = _load_reasons(figures)
    if not around.interrupted:
        found += _rate_reasons(figures, around, direct)
    if around.cpu > BUSY:
        found.append(f"a load process used {around.cpu:.0%} of a core: use more --processes")
    if around.broken:
        found.append(around.broken)
    return found


def _achieved(figures: Figures, around: Circumstances, direct: Figures | None) -> float | None:
    if direct is None:
        return achieved([figures], figures.counts.planned)
    return achieved([figures, direct], around.planned)


def _rate_reasons(figures: Figures, around: Circumstances, direct: Figures | None) -> list[str]:
    """Fewer requests than planned, or as many in more time (bench-and-cli §0.5).

    A last request that was late by no more than any may be makes no other rate, in however short a plan.
    """
    halves = [figures] if direct is None else [figures, direct]
    planned = figures.counts.planned if direct is None else around.planned
    sent = sum(half.counts.arrived for half in halves)
    share = _achieved(figures, around, direct)
    if not planned or share is None or share >= ACHIEVED:
        return []
    if sent < ACHIEVED * planned:
        return [f"only {sent / planned:.1%} of the planned requests were sent"]
    if late(halves) <= lag_limit(figures):
        return []
    queue = figures.latency.get("queue")
    held = queue is not None and queue.p99 > LAG_FLOOR
    why = "--max-concurrency held them back" if held else "use more --processes"
    return [f"requests were sent at {share:.1%} of the asked rate: {why}"]


def _load_reasons(figures: Figures, about: str = "") -> list[str]:
    """Nothing to judge by, or sent too late."""
    found = []
    lag, limit = figures.latency.get("lag"), lag_limit(figures)
    if figures.counts.ok + figures.counts.failed == 0:
        found.append(f"{about}not one request was completed")
    if lag is not None and lag.p99 > limit:
        said = f"{about}send lag p99 {lag.p99 * 1e3:.1f} ms is above {limit * 1e3:.1f} ms"
        found.append(f"{said}: use more --processes")
    return found


def _warnings(figures: Figures, around: Circumstances) -> list[str]:
    about = [*_about_the_run(figures, around), *_about_tokens(figures), *_oddities(figures)]
    return [*about, *_cache_warning(figures, around), *_cold_warning(figures, around)]


def _about_the_run(figures: Figures, around: Circumstances) -> list[str]:
    found = []
    counts, queue, ttft = figures.counts, figures.latency.get("queue"), figures.latency.get("ttft")
    if around.interrupted:
        found.append("interrupted: this report covers what was done until then")
    elif counts.incomplete:
        found.append(f"{counts.incomplete} requests were still open at the end and are in no latency figure")
    if counts.unsent:
        found.append(f"{counts.unsent} requests still waited for a free place at the end and were never sent")
    if around.asked is not None and around.planned is not None and around.planned < around.asked:
        found.append(f"the trace ends after {around.planned} of the {around.asked} requests asked for")
    if around.rows is not None and counts.arrived > around.rows:
        found.append(f"the dataset has {around.rows} rows and was sent again after the last")
    if around.halved:
        found.append("rates are those of the half that went through the router")
    if around.left_out:
        found.append(f"{around.left_out} rows of the trace without an answer's tokens (or a prompt's) were left out")
    if queue is not None and queue.p99 > LAG_FLOOR:
        found.append(f"requests waited for a free place (p99 {queue.p99:.3g} s): the asked rate was not kept")
    if ttft is not None and not enough(ttft.n, 0.99):
        found.append(f"{ttft.n} samples are few for p99 (1000 would do)")
    return found


def _about_tokens(figures: Figures) -> list[str]:
    found = []
    counts, chunk = figures.counts, figures.sizes.get("tokens_per_chunk")
    if counts.sources.get("chunks"):
        none = "no usage that can be" if counts.odd_usage else "no usage"
        found.append(f"output tokens are estimated: the server sent {none}, so chunks were counted")
    if cut := counts.sources.get("cut_off"):
        found.append(f"output tokens of {cut} answers that were cut off are a count of their chunks")
    gaps = figures.latency.get("icl")
    if gaps is not None and counts.together > TOGETHER * gaps.n:
        share = counts.together / gaps.n
        found.append(f"{share:.1%} of the chunks were read together with the one before, so their ICL is 0")
    if chunk is not None and chunk.mean > CHUNKY:
        found.append(f"{chunk.mean:.2f} tokens a chunk: inter-chunk times are not inter-token times")
    if counts.tokens_wrong:
        found.append(f"{counts.tokens_wrong} answers had another length than asked for")
    return found


def _oddities(figures: Figures, about: str = "") -> list[str]:
    """What a server did that no figure shows, since it was put right."""
    found, counts = [], figures.counts
    if counts.odd_usage:
        many = sum(counts.odd_usage.values())
        why = ", ".join(f"{times} × {reason}" for reason, times in counts.odd_usage.items())
        found.append(f"{about}{many} answers had usage that cannot be, which was passed over ({why})")
    if counts.resent:
        said = "requests were sent again: the kept connection that they went out on was closed at once"
        found.append(f"{about}{counts.resent} {said}")
    return found


def _cache_warning(figures: Figures, around: Circumstances) -> list[str]:
    share = hits(figures, around.engine_hits)
    if not around.cold or around.shared or share is None or share <= WARM_HITS:
        return []
    return [f"{share:.1%} of the input came from the prefix cache although the run was meant to be cold"]


def _cold_warning(figures: Figures, around: Circumstances) -> list[str]:
    share = hits(figures, around.engine_hits)
    if not around.warm or share is None or share >= COLD_SHARE:
        return []
    why = "caches are too small for it, or the router sends a prompt to another worker the second time"
    return [f"only {share:.1%} of the input was found cached although the run was meant to be warm: {why}"]
