"""How a benchmark is followed: a moving line on a terminal, one plain line per run elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from infera_cli.cli.console import console


class Watch:
    """Says on stderr how it goes (a `loadtest.bench.Watcher`)."""

    def __init__(self) -> None:
        from rich.console import Console

        from infera_cli.report.progress import Bar

        self._plan: Any = None
        self._said: Any = None
        self._bar = Bar(Console(stderr=True, no_color=not console.colour(sys.stderr)))

    def searches(self, wanted: Any) -> None:
        """Say what a search (`loadtest.options.Options.find_max`) will do: it takes long."""
        from infera_cli.loadtest.options import DEFAULT_PROMPTS
        from infera_cli.report.words import search_begins

        if wanted.find_max and wanted.slos:
            count = DEFAULT_PROMPTS if wanted.count is None and wanted.duration is None else wanted.count
            console.say(search_begins(wanted.find_max, wanted.attainment, wanted.slos, count=count,
                                      duration=wanted.duration))

    def begins(self, plan: Any) -> None:
        """A run is about to start."""
        self._plan = plan
        self._bar.begin(plan)

    def goes(self, progress: Any) -> None:
        """Show the state of things, and say what is waited for."""
        for one in progress:
            if one.state == "starting" and one.message and one is not self._said:
                self._said = one
                self._bar.end()     # a line of its own, above the one that moves
                console.say(one.message)
                self._bar.begin(self._plan)
        self._bar.show(progress)

    def ended(self, run: Any) -> None:
        """Say how a run of several came out; a single one has its report."""
        from infera_cli.report.rows import failed, in_limits, number, title
        from infera_cli.report.words import status

        self._bar.end()
        if run.cell or run.repeat:
            ttft = run.figures.latency.get("ttft")
            median = f", TTFT p50 {ttft.p50 * 1e3:.1f} ms" if ttft else ""
            rate = number(run.figures.rates.overall_requests)
            lost = failed(run)
            bad = f", {lost} the router failed" if "past" in lost else f", {lost} failed" if lost != "0" else ""
            kept = f", {in_limits(run.figures)} in limits" if run.figures.attainment else ""
            console.say(f"{title(run)}: {status(run)}, {rate} req/s{median}{kept}{bad}")

    def close(self) -> None:
        """Whatever happened, leave the terminal as it was."""
        self._bar.end()
