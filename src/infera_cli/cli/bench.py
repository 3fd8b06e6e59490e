"""`infera bench`: a load, what it met, and a verdict whether the numbers can be trusted."""

from __future__ import annotations

import importlib.util
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer

from infera_cli.cli.bench_checks import first_look
from infera_cli.cli.bench_options import options, spread
from infera_cli.cli.console import console
from infera_cli.cli.groups import CONTEXT, PlainCommand, PlainGroup
from infera_cli.errors import ConfigError, UsageError

MOMENT = 1.0        # seconds


class BenchGroup(PlainGroup):
    """`infera bench` runs a load; it has a few verbs besides."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Let several values follow one option, as other tools do."""
        found: list[str] = super().parse_args(ctx, spread(args))
        return found


app = typer.Typer(cls=BenchGroup, add_completion=False, rich_markup_mode=None, context_settings=CONTEXT)


@app.callback(invoke_without_command=True)
@options
def bench(ctx: typer.Context, asked: dict[str, Any]) -> int:
    """Load an OpenAI-compatible address and report latency, throughput and errors.

    \b
    infera bench --base-url http://127.0.0.1:8000 --request-rate 5 -d 60
    infera bench --base-url http://127.0.0.1:8000 -c 16 -n 500 --isl 512 --osl 64 --html report.html
    infera bench --base-url http://127.0.0.1:8000 --find-max --goodput ttft:300 tpot:30 -d 30

    Exit code: 0 fine, 1 too many failures or a missed --gate, 4 the numbers cannot be trusted (INVALID) or no load
    keeps the limits of --find-max, 130 interrupted. A search is judged by its runs at the load it found, or at the
    least it tried.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    return _checked(ctx, asked)


def _checked(ctx: typer.Context, asked: dict[str, Any]) -> int:
    """Refuse what cannot be, say what does nothing, and go."""
    if not asked["base_url"]:
        raise UsageError("give the address to load: --base-url http://127.0.0.1:8000")
    if asked["output"] not in ("table", "json"):
        raise UsageError(f"-o must be table or json, not {asked['output']!r}")
    said = first_look(ctx, asked)
    _need("locust", "matplotlib" if asked["html"] or asked["plot"] else "locust")
    for sentence in said:
        console.warn(sentence)
    return _run(asked)


def _run(asked: dict[str, Any]) -> int:
    with patient() as pressed:
        try:
            document, lost = _reported(asked)
        except KeyboardInterrupt:
            dropped = "interrupted again: the report was dropped"
            console.say("interrupted before there was anything to report" if len(pressed) < 2 else dropped)
            return 130
    if "failed" in document.findings:
        console.error(document.findings["failed"])
    for sentence in lost:
        console.error(sentence)
    code = exit_code(document)
    return code if code == 130 or not lost else 1


def _reported(asked: dict[str, Any]) -> tuple[Any, list[str]]:
    """The document of what was asked for, shown and written; and a sentence for each file that could not be."""
    from infera_cli.cli.bench_asked import options_from, outputs_from, shown
    from infera_cli.cli.bench_watch import Watch
    from infera_cli.loadtest.bench import Bench

    wanted, outputs, view = options_from(asked), outputs_from(asked, datetime.now(UTC)), shown(asked)
    outputs.check()
    watch = Watch()
    try:
        bench = Bench(wanted, watch, patience=asked["ready_check"], details=outputs.details)
        watch.searches(wanted)
        document = bench.run()
    finally:
        watch.close()
    lost = outputs.write(document)
    if asked["output"] == "json":
        from infera_cli.workload.result import encode

        console.data(encode(document).decode())
    else:
        _show(document, view)
    return document, lost


@contextmanager
def patient() -> Iterator[list[float]]:
    """Ctrl-C and SIGTERM interrupt, and whoever presses several times in a moment meant it once.

    The instants at which it was meant.
    """
    pressed: list[float] = []

    def press(_number: int, _frame: Any) -> None:
        if not pressed or monotonic() - pressed[-1] > MOMENT:
            pressed.append(monotonic())
            raise KeyboardInterrupt

    numbers = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, press) for number in numbers}
    try:
        yield pressed
    finally:
        for number, handler in before.items():      # once interrupted, a late press must not kill what ends anyway
            signal.signal(number, signal.SIG_IGN if pressed else handler)


def _show(document: Any, view: dict[str, Any]) -> None:
    from infera_cli.report import console as report

    console.data(report.report(document, colour=console.colour(sys.stdout), code=exit_code(document), **view))


def exit_code(document: Any) -> int:
    """The code of the worst run (rulings 5); of a search, that of the level it found."""
    if document.findings.get("interrupted"):
        return 130
    if document.findings.get("failed"):
        return 1
    codes = {run.verdict.exit_code for run in document.runs}
    found = document.findings.get("find_max")
    if found and 130 not in codes:
        codes = _search_codes(document, found)
    return next((code for code in (130, 1, 4) if code in codes), 0 if document.runs else 1)


def _search_codes(document: Any, found: Any) -> set[int]:
    """Failures and missed gates at more load than was found are part of the search; at the most load that keeps the
    limits, and at the least when none does, they are what the server does. A run that spoils an end spoils the answer;
    one that was repeated, stands beside a sound one that kept the limits, or lies beyond the ends, does not.
    """
    if found.get("broken"):
        return {1}

    def at(end: Any) -> list[int]:
        return [run.verdict.exit_code for run in document.runs if run.cell == f"{found['kind']}={end}"]

    passed, failed = at(found["passed"]), at(found["failed"])
    spoiled = failed[-1:] == [4] or (passed != [] and set(passed) == {4})
    codes = set(passed if found["passed"] else failed) - {4}
    return codes | {4} if spoiled or not found["passed"] else codes


def _need(*modules: str) -> None:
    """Refuse in words when an extra is missing."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"this needs {name}: pip install 'infera-cli[bench]'")


# ── compare ──────────────────────────────────────────────────────────────────────────────────────────
Results = Annotated[list[str], typer.Argument(metavar="A B...", help="Results of --save-result.")]
Html = Annotated[str | None, typer.Option("--html", metavar="FILE", help="One page with plots.")]
Output = Annotated[str, typer.Option("-o", "--output", metavar="FORMAT", help="table or json.",
                                     autocompletion=lambda: ["table", "json"])]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the bootstrap.")]


@app.command(cls=PlainCommand)
def compare(results: Results, html: Html = None, output: Output = "table", seed: Seed = 1) -> int:
    """Put results side by side; everything after the first is compared with it.

    \b
    infera bench compare before.json after.json --html compare.html
    """
    return _compared(results, html, output, seed)


def _compared(results: list[str], html: str | None, output: str, seed: int) -> int:
    if len(results) < 2:
        raise UsageError("give at least two results to compare")
    if output not in ("table", "json"):
        raise UsageError(f"-o must be table or json, not {output!r}")
    if html is not None:
        _need("matplotlib")
        if len(results) > 2:
            raise UsageError("--html shows two results; give just A and B")
    from infera_cli.cli.bench_compare import compare_files

    compare_files(results, html=html, as_json=output == "json", seed=seed)
    return 0


# ── worker ───────────────────────────────────────────────────────────────────────────────────────────
Master = Annotated[str, typer.Option("--master", metavar="HOST:PORT", help="Where --master-bind listens.")]


@app.command(cls=PlainCommand)
def worker(master: Master) -> int:
    """Lend this machine to a benchmark on another one: for all of its runs, then end.

    It waits up to ten minutes for the benchmark to be there. Exit code: 0 the benchmark is over, 1 it was never there,
    or is gone before its end.

    \b
    there: infera bench --base-url http://router:8000 --rate 500 -d 60 --master-bind 0.0.0.0:5557 --expect-workers 2
    here:  infera bench worker --master there:5557
    """
    _need("locust")
    from infera_cli.loadtest.processes import join

    return join(master, console.say)


def result_name(when: datetime, given: str | None, folder: str | None) -> Path:
    """Where a result goes: the given name, else one made from the time."""
    name = given or f"infera-bench-{when:%Y%m%d-%H%M%S}.json"
    return Path(folder) / name if folder else Path(name)
