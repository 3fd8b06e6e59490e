"""Our simulated engine, which has vLLM's interface."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from infera_cli.launch.dialects.vllm import Vllm


class Sim(Vllm):
    """`python -m infera_cli.simengine`, with the interpreter that runs infera, and no module of the folder it is in."""

    name = "sim"
    bind_host = "127.0.0.1"
    report_flag = None
    dp_size_flags: tuple[str, ...] = ()
    dp_rank_flags: tuple[str, ...] = ()

    def program(self, python: str) -> list[str]:
        """See Dialect."""
        return [sys.executable, "-P", "-m", "infera_cli.simengine"]

    def model(self, args: Sequence[str]) -> str | None:
        """See Dialect; it calls its model sim unless told otherwise."""
        return super().model(args) or "sim"
