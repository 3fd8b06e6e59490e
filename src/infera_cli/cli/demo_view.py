"""What `infera demo` shows: a live table on a terminal, plain lines anywhere else; the same end for both.

Steps and summaries are those of `client.demo`; they come as Any, since a view only reads them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from infera_cli.cli.console import Console


class View(Protocol):
    """The stages of a demo, in order."""

    def start(self, url: str, engines: int) -> None:
        """The router listens at `url`; the engines are starting."""

    def ready(self, workers: Sequence[tuple[str, str]]) -> None:
        """Names and addresses of the engines; traffic begins."""

    def asked(self, step: Any) -> None:
        """A turn began."""

    def answered(self, step: Any) -> None:
        """A turn is over."""

    def end(self, summary: Any) -> None:
        """All conversations are over."""

    def invite(self, url: str, *, stays: bool) -> None:
        """What to try next; `stays` says whether the router is still there."""

    def close(self) -> None:
        """Leave the terminal as it was; safe at any time."""


def live_or_plain(console: Console) -> View:
    """The view for this standard output."""
    if sys.stdout.isatty() and console.colour(sys.stdout):
        from infera_cli.cli.demo_live import Live

        return Live(console)
    return Plain(console)


class Plain:
    """One line per change."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def start(self, url: str, engines: int) -> None:
        """The address first."""
        self._console.data(f"infera demo at {url}")
        self._console.data(f"starting {engines} simulated engine{'' if engines == 1 else 's'}")

    def ready(self, workers: Sequence[tuple[str, str]]) -> None:
        """A line per engine."""
        for name, url in workers:
            self._console.data(f"{name} is ready at {url}")

    def asked(self, step: Any) -> None:
        """A turn that begins is no news without a terminal."""

    def answered(self, step: Any) -> None:
        """A line per turn."""
        self._console.data(f"conversation {step.conversation}, turn {step.turn}: {turn_text(step)}")

    def end(self, summary: Any) -> None:
        """Who served what, and the figures."""
        show_summary(self._console, summary)

    def invite(self, url: str, *, stays: bool) -> None:
        """Lines to copy."""
        for line in invitation(url, stays=stays):
            self._console.data(line)

    def close(self) -> None:
        """Nothing to restore."""


def turn_text(step: Any) -> str:
    """One finished turn in words."""
    if step.error is not None:
        return f"failed: {step.error}"
    cached = "" if step.cached is None else f", {step.cached} of them cached"
    return (f"{step.worker} answered; prompt {step.prompt} tokens{cached}; "
            f"first token after {milliseconds(step.ttft)}, all after {milliseconds(step.latency)}")


def show_summary(console: Console, summary: Any) -> None:
    """The table of who served what, and one line of figures."""
    console.data("")
    rows = [(s.worker, s.turns, f"{s.part:.0%}", s.conversations) for s in summary.shares]
    console.table(("WORKER", "TURNS", "SHARE", "CONVERSATIONS"), rows)
    console.data("")
    for line in figures(summary):
        console.data(line)


def figures(summary: Any) -> list[str]:
    """The figures of a summary, those that are known."""
    lines = [f"{summary.turns} turns answered, {summary.errors} failed"]
    if summary.reuse is not None:
        lines.append(f"prefix reuse: {summary.reuse:.0%} of the prompt tokens were in their worker's cache")
    if summary.ttft_p50 is not None:
        lines += [_percentiles("first token", summary.ttft_p50, summary.ttft_p90),
                  _percentiles("whole answer", summary.latency_p50, summary.latency_p90)]
    return lines


def _percentiles(what: str, middle: float, high: float) -> str:
    return f"{what}: p50 {milliseconds(middle)}, p90 {milliseconds(high)}"


_INVITATION = """
try it with curl:
  curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{{"messages": [{{"role": "user", "content": "Hello"}}], "stream": true}}'

or with Python (pip install openai):
  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="none")
  model = client.models.list().data[0].id
  hello = [{{"role": "user", "content": "Hello"}}]
  print(client.chat.completions.create(model=model, messages=hello).choices[0].message.content)

look inside:
  {infera} workers list --server {url}
  {infera} requests --server {url}
  {url}/docs

Ctrl-C stops the router and the engines"""


def invitation(url: str, *, stays: bool) -> list[str]:
    """What to try next."""
    if not stays:
        return ["", f"in front of your own engines: {program()} serve --worker URL"]
    return _INVITATION.format(url=url, infera=program()).splitlines()


def program() -> str:
    """How a shell reaches this program: by name where it is on PATH, else by where it lies."""
    if shutil.which("infera"):
        return "infera"
    started = Path(sys.argv[0]).absolute()
    if started.name == "infera" and os.access(started, os.X_OK):
        return shlex.quote(str(started))
    return f"{shlex.quote(sys.executable)} -m infera_cli"


def milliseconds(seconds: float) -> str:
    """A duration as a person reads it."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
