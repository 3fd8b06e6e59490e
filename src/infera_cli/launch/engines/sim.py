"""The simulated engine of this package; needs infera in the interpreter, and no device."""

from __future__ import annotations

from infera_cli.launch.engines.engine import Engine, Start, module_command, named


def command(start: Start) -> tuple[str, ...]:
    """Model, name, address, then the user's own."""
    return module_command(
        start, "infera_cli.simengine", "--model", start.model, *named(start),
        "--host", start.host, "--port", str(start.port),
    )  # fmt: skip


ENGINE = Engine(name="sim", command=command, pattern=r"[i]nfera_cli\.simengine")
