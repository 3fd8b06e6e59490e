"""SGLang (engines.md §2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infera_cli.launch.dialects.arguments import is_given, value_of
from infera_cli.launch.dialects.base import Dialect, EventSource


class SGLang(Dialect):
    """`python -m sglang.launch_server`."""

    name = "sglang"
    wire_name = "sglang"
    bind_host = "0.0.0.0"  # its own default is 127.0.0.1
    model_flags = ("--model-path", "--model")
    block_size_flags = ("--page-size",)
    dp_size_flags = ("--dp-size", "--data-parallel-size", "--dp")
    node_rank_flags = ("--node-rank",)
    ready_timeout = 25.0  # a stalled engine answers after 20 s
    publishes_kv = True
    report_flag = "--enable-cache-report"
    sources_path = "/server_info"

    def program(self, python: str) -> list[str]:
        """See Dialect."""
        return [python, "-m", "sglang.launch_server"]

    def further(self, args: Sequence[str]) -> list[str]:
        """Without its metrics a drain could not be watched (S11)."""
        return [] if is_given(args, ("--enable-metrics",)) else ["--enable-metrics"]

    def half(self, args: Sequence[str]) -> str | None:
        """See Dialect."""
        mode = value_of(args, ("--disaggregation-mode",))
        return mode if mode in ("prefill", "decode") else None

    def event_source(self, document: Any) -> EventSource | None:
        """See Dialect; part of the server's description (engines.md §2.3)."""
        said = document.get("kv_events") if isinstance(document, dict) else None
        if not isinstance(said, dict) or said.get("publisher") != "zmq":
            return None
        port, replay = said.get("endpoint_port_base"), said.get("replay_endpoint_port_base")
        return EventSource(port, replay if isinstance(replay, int) else None) if isinstance(port, int) else None
