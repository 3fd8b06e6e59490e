"""SGLang, which listens on loopback only unless told otherwise (engines.md §2.1)."""

from __future__ import annotations

from infera_cli.launch.engines.engine import Engine, Start, module_command, named


def command(start: Start) -> tuple[str, ...]:
    """Model, name, address, then the user's own."""
    return module_command(
        start, "sglang.launch_server", "--model-path", start.model, *named(start),
        "--host", start.host, "--port", str(start.port),
    )  # fmt: skip


ENGINE = Engine(
    name="sglang", command=command, device_variable="CUDA_VISIBLE_DEVICES",
    pattern=r"[s]glang\.launch_server",
    hints=((r"mem[-_]fraction[-_]static", "lower --mem-fraction-static in \"serve_args\""),),
)  # fmt: skip
