"""What a report ends in: what to know of a run, its verdict, and why the exit code is not 0 (rulings 5)."""

from __future__ import annotations

from collections.abc import Iterator

from infera_cli.report import rows, words
from infera_cli.workload.comparison import failed
from infera_cli.workload.cutoff import TIMEOUT
from infera_cli.workload.result import Document, Run
from infera_cli.workload.verdict import EXIT_FAILED, EXIT_INVALID, error_rate

DICE = 0.1      # how far the rate between first and last request may be from the asked one without a word
LONG = 1.1      # times -d, and a second: a run that takes longer says why
LISTED = 4      # runs named in the last line

AGAIN = "#2 and on: the same load again, for --repeat or since a search could not decide yet"


# ── notes ────────────────────────────────────────────────────────────────────────────────────────────
def notes(run: Run) -> Iterator[str]:
    """What a reader may take for a fault and is none."""
    yield from _dice(run)
    yield from _longer(run)
    yield from _cut_off(run)
    yield from _unknown(run)


def _dice(run: Run) -> Iterator[str]:
    """A short plan holds as many requests as asked for, and its first and last are anywhere within it."""
    counts, found, options = run.figures.counts, run.figures.rates, run.options
    rate, drawn = found.offered_requests, options.get("burstiness", 1.0) != "inf" and "ramp_shape" not in options
    if not rate or not drawn or "rate" not in options or counts.planned != counts.sent or not found.sent_requests:
        return
    if found.late_s or abs(found.sent_requests / rate - 1) <= DICE:
        return
    apart = (counts.sent - 1) / found.sent_requests
    yield (
        f"asked for and sent were {counts.sent:,} requests in {rows.number(counts.sent / rate)} s; the dice of the"
        f" arrivals put the first and the last {rows.number(apart)} s apart, hence {rows.number(found.sent_requests)}"
        f" req/s between these two; the rates of the whole run are high for the same reason"
    )


def _longer(run: Run) -> Iterator[str]:
    """-d is how long requests come; those that came are answered, for as long as --grace allows."""
    asked, took = run.options.get("duration"), run.figures.rates.window_s
    if asked and not run.partial and took > LONG * float(asked) + 1:
        yield (
            f"the run took {rows.number(took)} s: -d {float(asked):g} is how long requests come, and what was open or"
            f" waited by then had up to {float(run.options.get('grace', 0)):g} s more (--grace)"
        )


def _cut_off(run: Run) -> Iterator[str]:
    """What the end of the run cut off is within the limits or not only where that is certain."""
    found = run.figures.attainment
    if found is not None and found.cut_off_missed:
        yield f"{found.cut_off_missed:,} requests that were cut off had missed a limit by then, and count as such"
    if found is not None and found.cut_off_open:
        yield f"{found.cut_off_open:,} requests that were cut off could still have kept the limits, and are not judged"


def _unknown(run: Run) -> Iterator[str]:
    """What the server does not say is no 0."""
    counts = run.figures.counts
    if counts.ok and counts.cached_tokens is None and "engine_prompt_tokens" not in run.target:
        yield (
            "prefix-cache hits are unknown: the server reports no cached tokens (vLLM does with"
            " --enable-prompt-tokens-details, where there are any; SGLang with --enable-cache-report)"
        )


# ── the verdict ──────────────────────────────────────────────────────────────────────────────────────
def verdict(run: Run, code: int = 0) -> str:
    """Whether the figures can be trusted, what went wrong besides, and the exit code where it is that of the run."""
    reasons, bad = "; ".join(run.verdict.reasons), " and ".join(failing(run))
    said = f"{words.status(run)}: {reasons}" if reasons else words.status(run)
    if bad:
        said += f"; besides, {bad}" if reasons else f", but {bad}"
    return said + _exit(code)


def failing(run: Run) -> Iterator[str]:
    """What makes a run exit 1 although its figures may be true: failures, and limits that were asked for."""
    if run.verdict.exit_code != EXIT_FAILED:
        return
    allowed = float(run.options.get("max_error_rate", 0.0))
    halves = [half for half in (run.figures, run.direct) if half is not None]
    if any(error_rate(half) > allowed for half in halves):
        bad, judged = failed(halves)
        limit = f", more than --max-error-rate {allowed:g}" if allowed else ""
        silent = sum(half.counts.failures.get(TIMEOUT, 0) for half in halves)
        waited = f", {silent:,} of which still waited for a token when the run ended" if silent else ""
        yield f"{bad:,} of {judged:,} requests failed{limit}{waited}"
    missed = len(run.verdict.missed)
    if missed:
        yield "a limit of --gate was missed" if missed == 1 else f"{missed} limits of --gate were missed"


def last(document: Document, code: int = 0) -> str:
    """Why several runs together end in `code`; nothing for a single one, whose verdict says it, and for 0."""
    if code not in (EXIT_FAILED, EXIT_INVALID) or document.findings.get("failed") or len(document.runs) < 2:
        return ""
    guilty = [run for run in document.runs if run.verdict.exit_code == code]
    told = [f"{rows.title(run)}: {' and '.join(failing(run)) or run.verdict.status}" for run in guilty[:LISTED]]
    more = [f"{len(guilty) - LISTED} more"] if len(guilty) > LISTED else []
    return f"exit {code}: {'; '.join(told + more)}"


def search(document: Document, code: int = 0) -> str:
    """What a search found, and the exit code that follows."""
    return words.find_max(document.findings["find_max"], document.runs) + _exit(code)


def _exit(code: int) -> str:
    return f" (exit {code})" if code in (EXIT_FAILED, EXIT_INVALID) else ""
