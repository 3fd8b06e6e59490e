"""vLLM, by its API server module, so that the interpreter of the host entry decides (engines.md §1.1)."""

from __future__ import annotations

from infera_cli.launch.engines.engine import Engine, Start, module_command, named


def command(start: Start) -> tuple[str, ...]:
    """Model, name, address, then the user's own."""
    return module_command(
        start, "vllm.entrypoints.openai.api_server", "--model", start.model, *named(start),
        "--host", start.host, "--port", str(start.port),
    )  # fmt: skip


ENGINE = Engine(
    name="vllm", command=command, device_variable="CUDA_VISIBLE_DEVICES",
    pattern=r"[v]llm\.entrypoints\.openai\.api_server",
    hints=(
        (r"[Ff]ree memory on device|gpu_memory_utilization", "lower --gpu-memory-utilization in \"serve_args\""),
        (r"VLLM_ENGINE_READY_TIMEOUT_S", "raise VLLM_ENGINE_READY_TIMEOUT_S in \"env\""),
        (r"max seq len|max_model_len", "set a smaller --max-model-len in \"serve_args\""),
    ),
)  # fmt: skip
