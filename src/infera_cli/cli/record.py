"""`infera record`: a trace of real traffic that `infera bench` and `infera simulate` replay."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer

from infera_cli.cli import bench_files
from infera_cli.cli.console import console
from infera_cli.cli.groups import PlainCommand, verb
from infera_cli.cli.options import settings_of
from infera_cli.cli.servers import target
from infera_cli.cli.values import value_of
from infera_cli.config.kinds import Seconds
from infera_cli.config.settings import ClientSettings
from infera_cli.errors import ConfigError, ServerUnreachable

app = verb()
LONGEST = 86_400.0
ENOUGH = 0.9    # of the time asked for; a stream that ends before was cut off

For = Annotated[str, typer.Option("--for", metavar="DURATION", help="How long, e.g. 90s or 10m.")]
Out = Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="File to write.")]


@app.command(cls=PlainCommand)
@settings_of(ClientSettings)
def record(typed: dict[str, Any], *, length: For = "10m", output: Out = "trace.jsonl") -> None:
    """Record what a running server serves: times, lengths and which beginnings of prompts were equal.

    No text leaves the server. Prompts are named by hashes with a key that is made for the recording and kept nowhere.

    \b
    infera record --for 10m -o trace.jsonl
    infera simulate --workers 2..32 --goodput ttft:500 --dataset-name mooncake --dataset-path trace.jsonl
    infera bench --base-url http://127.0.0.1:8000 --dataset-name mooncake --dataset-path trace.jsonl --speed 2
    """
    from infera_cli.client.http import Server
    from infera_cli.client.record import record as write

    seconds, path = _seconds(length), Path(output)
    bench_files.possible(path)
    if path.exists() and not path.is_file():
        raise ConfigError(f"cannot record into {path}: it is not a file")
    place = target(typed)
    server = Server(place["url"], token=place["token"], timeout=max(place["timeout"], 10.0))
    console.say(f"recording {length} of {server.url}; Ctrl-C ends it earlier")
    began = monotonic()
    found = write(server.lines("/v1/admin/trace", seconds=seconds), path, _tell)
    lasted = monotonic() - began
    if sys.stderr.isatty():
        console.say("")
    if not found.rows:
        raise ConfigError(f"no request ended in that time; {path} was not written")
    console.data(f"{path}: {found.rows} requests")
    if found.end == "lost" or (found.end == "over" and lasted < ENOUGH * seconds):
        reason = f": {found.reason}" if found.reason else ""
        raise ServerUnreachable(
            f"the recording ended after {lasted:.0f} s of {seconds:g}, since the server did{reason}; the file has what"
            f" came until then"
        )


def _tell(rows: int) -> None:
    """Show how many there are, on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{rows} requests")
        sys.stderr.flush()


def _seconds(text: str) -> float:
    value: float = value_of(Seconds(), text, "--for")
    if value > LONGEST:
        raise ConfigError("--for is at most 24h")
    return value
