"""Any other engine: the words of the host's `command`, then its `serve_args`."""

from __future__ import annotations

from infera_cli.launch.engines.engine import Engine, Start


def command(start: Start) -> tuple[str, ...]:
    """As given; {device}, {devices} and {port} are filled in before."""
    return (*start.command, *start.serve_args)


ENGINE = Engine(name="custom", command=command)
