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
        from infera_cli.report.rows import failed, number, title
        from infera_cli.report.words import status

        self._bar.end()
        if run.cell or run.repeat:
            ttft = run.figures.latency.get("ttft")
            median = f", TTFT p50 {ttft.p50 * 1e3:.1f} ms" if ttft else ""
            rate = number(run.figures.rates.overall_requests)
            lost = failed(run)
            bad = f", {lost} the router failed" if "past" in lost else f", {lost} failed" if lost != "0" else ""
            console.say(f"{title(run)}: {status(run)}, {rate} req/s{median}{bad}")

    def close(self) -> None:
        """Whatever happened, leave the terminal as it was."""
        self._bar.end()
