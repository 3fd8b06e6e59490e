"""vLLM (engines.md §1)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from infera_cli.launch.dialects.arguments import value_of, whole
from infera_cli.launch.dialects.base import Dialect, EventSource, KvPorts, bound_port

_HALVES = {"kv_producer": "prefill", "kv_consumer": "decode"}


class Vllm(Dialect):
    """`python -m vllm.entrypoints.openai.api_server`."""

    name = "vllm"
    dp_size_flags: tuple[str, ...] = ("--data-parallel-size", "-dp")
    dp_rank_flags: tuple[str, ...] = ("--data-parallel-rank",)
    publishes_kv = True
    report_flag: str | None = "--enable-prompt-tokens-details"
    sources_path = "/kv_event_sources"

    def program(self, python: str) -> list[str]:
        """See Dialect."""
        return [python, "-m", "vllm.entrypoints.openai.api_server"]

    def command(self, args: Sequence[str], *, python: str, port: int, kv: KvPorts | None = None) -> list[str]:
        """See Dialect; a model named as `vllm serve` takes it, first and without a flag, gets its flag."""
        return super().command(_with_flag(args), python=python, port=port, kv=kv)

    def model(self, args: Sequence[str]) -> str | None:
        """See Dialect."""
        return super().model(_with_flag(args))

    def kv_config(self, kv: KvPorts) -> dict[str, Any]:
        """See Dialect."""
        return {"enable_kv_cache_events": True, **super().kv_config(kv)}

    def environment(self, port: int) -> dict[str, str]:
        """See Dialect; block hashes as numbers, which are the shortest."""
        return {**super().environment(port), "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "1"}

    def half(self, args: Sequence[str]) -> str | None:
        """See Dialect; the role is inside `--kv-transfer-config`."""
        try:
            config = json.loads(value_of(args, ("--kv-transfer-config",)) or "{}")
        except (ValueError, RecursionError):
            return None
        return _HALVES.get(str(config.get("kv_role"))) if isinstance(config, dict) else None

    def event_source(self, document: Any) -> EventSource | None:
        """See Dialect; ranks are keys as text, and ports carry the rank already (engines.md §1.5)."""
        if not isinstance(document, dict) or not document:
            return None
        first = min(document, key=_number)
        said = document[first]
        port = bound_port(said.get("endpoint")) if isinstance(said, dict) else None
        return EventSource(port, bound_port(said.get("replay_endpoint"))) if port is not None else None


def _number(rank: Any) -> int:
    found = whole(str(rank))
    return found if found is not None else 1 << 30


def _with_flag(args: Sequence[str]) -> Sequence[str]:
    return ["--model", *args] if args and not args[0].startswith("-") else args
