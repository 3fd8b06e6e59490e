"""The live table of `infera demo` on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rich.live
from rich.console import Group
from rich.table import Table
from rich.text import Text

from infera_cli.cli.console import Console
from infera_cli.cli.demo_view import figures, invitation, milliseconds


class Live:
    """One row per conversation and one bar per worker, redrawn as turns end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: rich.live.Live | None = None
        self._workers: dict[str, int] = {}
        self._talks: dict[int, Any] = {}
        self._busy: dict[int, int] = {}
        self._note = ""

    def start(self, url: str, engines: int) -> None:
        """The address stays above the table."""
        self._console.data(f"infera demo at {url}\n")
        self._note = f"starting {engines} simulated engine{'' if engines == 1 else 's'} …"
        self._live = rich.live.Live(self._picture(), refresh_per_second=12)
        self._live.start()

    def ready(self, workers: Sequence[tuple[str, str]]) -> None:
        """A bar per engine."""
        self._workers = {name: 0 for name, _ in workers}
        self._note = "conversations on their way …"
        self._draw()

    def asked(self, step: Any) -> None:
        """The conversation waits for an answer."""
        self._busy[step.conversation] = step.turn
        self._talks.setdefault(step.conversation, None)
        self._draw()

    def answered(self, step: Any) -> None:
        """The conversation has one."""
        self._busy.pop(step.conversation, None)
        self._talks[step.conversation] = step
        if step.error is None:
            self._workers[step.worker] = self._workers.get(step.worker, 0) + 1
        self._draw()

    def end(self, summary: Any) -> None:
        """The last picture stays, with the figures below."""
        self._note = "\n".join(figures(summary))
        self._draw()
        self.close()

    def invite(self, url: str, *, stays: bool) -> None:
        """Lines to copy."""
        for line in invitation(url, stays=stays):
            self._console.data(line)

    def close(self) -> None:
        """Give the terminal back."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self) -> None:
        if self._live is not None:
            self._live.update(self._picture())

    def _picture(self) -> Group:
        parts: list[Table | Text] = []
        if self._workers:
            parts += [self._served(), Text(), self._conversations(), Text()]
        return Group(*parts, Text(self._note, style="dim" if self._note.endswith("…") else "bold"))

    def _served(self) -> Table:
        table = Table("worker", "turns served", box=None, pad_edge=False, header_style="dim")
        for name, turns in self._workers.items():
            table.add_row(Text(name, style="cyan"), Text("█" * min(turns, 40) + f" {turns}"))
        return table

    def _conversations(self) -> Table:
        table = Table("conversation", "turn", "worker", "prompt", "cached", "first token", "answer",
                      box=None, pad_edge=False, header_style="dim")
        for number, step in self._talks.items():
            table.add_row(*self._row(number, step))
        return table

    def _row(self, number: int, step: Any) -> list[Text]:
        turn = str(self._busy.get(number, step.turn if step else 0)) + (" …" if number in self._busy else "")
        if step is None:
            cells = [str(number), turn, "", "", "", "", ""]
        elif step.error is not None:
            failure = Text(f"failed: {step.error}", style="red")
            return [Text(str(number)), Text(turn), Text(step.worker), Text(), Text(), Text(), failure]
        else:
            share = "" if step.cached is None or not step.prompt else f"{step.cached / step.prompt:.0%}"
            cells = [str(number), turn, step.worker, str(step.prompt), share,
                     milliseconds(step.ttft), milliseconds(step.latency)]
        styles = ("", "", "cyan", "", "green", "", "")
        return [Text(cell, style=style) for cell, style in zip(cells, styles, strict=True)]
