"""ATOM: `--server-port` is HTTP, `--port` an internal one that has to differ too (engines.md §3)."""

from __future__ import annotations

from infera_cli.launch.engines.engine import Engine, Start, module_command, named

_INTERNAL = 10_000
"""Added to the HTTP port for the engine's own, or taken away where that leaves the range of ports."""


def command(start: Start) -> tuple[str, ...]:
    """Model, name, address, an internal port of its own, then the user's own."""
    internal = start.port + _INTERNAL if start.port + _INTERNAL <= 65535 else start.port - _INTERNAL
    return module_command(
        start, "atom.entrypoints.openai_server", "--model", start.model, *named(start),
        "--host", start.host, "--server-port", str(start.port), "--port", str(internal),
    )  # fmt: skip


ENGINE = Engine(
    name="atom", command=command, device_variable="HIP_VISIBLE_DEVICES",
    pattern=r"[a]tom\.entrypoints\.openai_server", port_flag="--server-port",
)  # fmt: skip
