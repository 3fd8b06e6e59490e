"""pypto-serving: devices are flags, and the start-up log is asked for (replica-router §1.5; engines.md §4)."""

from __future__ import annotations

from infera_cli.launch.engines.engine import Engine, Start, module_command, named


def command(start: Start) -> tuple[str, ...]:
    """The order of the sheet: model, devices, host, port, logs, name, the user's own last."""
    devices = ("--devices", ",".join(map(str, start.devices))) if start.devices else ()
    return module_command(
        start, "pypto_serving.cli", "--model", start.model, *devices,
        "--host", start.host, "--port", str(start.port), "--show-startup-logs", *named(start),
    )  # fmt: skip


ENGINE = Engine(
    name="pypto", command=command, pattern=r"[p]ypto_serving\.cli",
    hints=(
        (r"PYPTO_PROG_BUILD_DIR|build director", "give each replica its own PYPTO_PROG_BUILD_DIR in \"env\""),
        (r"worker init.*timed? ?out", "raise PYPTO_WORKER_INIT_TIMEOUT in \"env\""),
    ),
)  # fmt: skip
