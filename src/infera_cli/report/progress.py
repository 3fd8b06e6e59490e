"""A line that moves while a load runs: on a terminal, and nowhere else."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

RATE_WINDOW = 5.0   # seconds over which the completion rate is taken
WIDTH = 16
GETTING_READY = "getting ready…"
NO_MORE = ", no new ones"


class Running(Protocol):
    """What one load process tells (loadtest.job.Progress)."""

    @property
    def state(self) -> str:
        """starting, ready, running or done."""
    @property
    def done(self) -> int:
        """Successes so far."""
    @property
    def failed(self) -> int:
        """Failures so far."""
    @property
    def open(self) -> int:
        """Requests going on."""
    @property
    def ttft(self) -> float | None:
        """Median of the latest, in seconds."""
    @property
    def lag(self) -> float:
        """Worst send lag, in seconds."""


class Expected(Protocol):
    """What is known beforehand (loadtest.bench.Plan)."""

    @property
    def cell(self) -> str:
        """The cell of a sweep, or nothing."""
    @property
    def repeat(self) -> int:
        """Which repetition, from 0."""
    @property
    def requests(self) -> int | None:
        """How many are planned, if that is fixed."""
    @property
    def seconds(self) -> float | None:
        """How long it takes, if that is fixed."""


class Bar:
    """Shows rate, open requests, TTFT, errors and time left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._plan: Expected | None = None
        self._start: float | None = None
        self._marks: deque[tuple[float, int]] = deque()

    def begin(self, plan: Expected) -> None:
        """A run is about to start."""
        self._plan, self._start = plan, None
        self._marks.clear()
        if self._console.is_terminal:
            self._live = Live(Text(GETTING_READY), console=self._console, transient=True, auto_refresh=False)
            self._live.start()

    def show(self, running: Sequence[Running]) -> None:
        """The state of all load processes."""
        if self._live is not None:
            line = Text(self.line(running, monotonic()), no_wrap=True, overflow="ellipsis")
            self._live.update(line, refresh=True)

    def end(self) -> None:
        """The run is over: leave no trace."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def line(self, running: Sequence[Running], now: float) -> str:
        """One line about all processes, at `now` seconds."""
        plan = self._plan
        if plan is None:
            return GETTING_READY
        cell = f"{plan.cell} #{plan.repeat + 1}".strip() if plan.repeat else plan.cell
        if all(process.state in ("starting", "ready") for process in running):
            return "  ".join(part for part in (cell, GETTING_READY) if part)
        self._start = now if self._start is None else self._start
        done = sum(process.done for process in running)
        failed = sum(process.failed for process in running)
        known = [process.ttft for process in running if process.ttft is not None]
        ttft = f"TTFT {sum(known) / len(known) * 1e3:.0f} ms" if known else "TTFT -"
        over = NO_MORE if plan.seconds and now - self._start > plan.seconds + 1 else ""
        parts = [
            cell, self._bar(plan, done + failed, now - self._start),
            f"{self._rate(done, now):.1f} req/s", f"{sum(process.open for process in running)} open{over}", ttft,
            f"{failed} errors", f"lag {max(process.lag for process in running) * 1e3:.0f} ms",
        ]
        return "  ".join(part for part in parts if part)

    def _rate(self, done: int, now: float) -> float:
        self._marks.append((now, done))
        while now - self._marks[0][0] > RATE_WINDOW:
            self._marks.popleft()
        then, before = self._marks[0]
        return (done - before) / (now - then) if now > then else 0.0

    @staticmethod
    def _bar(plan: Expected, over: int, elapsed: float) -> str:
        if plan.requests:
            share = min(1.0, over / plan.requests)
            left = elapsed * (1 - share) / share if share > 0 else None
        elif plan.seconds:
            share, left = min(1.0, elapsed / plan.seconds), max(0.0, plan.seconds - elapsed)
        else:
            return f"{over} done"
        filled = round(WIDTH * share)
        rest = "" if left is None else f" {int(left // 60)}:{int(left % 60):02d} left"
        return "━" * filled + "·" * (WIDTH - filled) + f" {share:4.0%}{rest}"
