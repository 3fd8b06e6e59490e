"""What each engine that `infera launch` knows says and understands, a file each."""

from __future__ import annotations

from infera_cli.errors import UsageError
from infera_cli.launch.dialects.atom import Atom
from infera_cli.launch.dialects.base import Dialect, KvPorts
from infera_cli.launch.dialects.pypto import Pypto
from infera_cli.launch.dialects.sglang import SGLang
from infera_cli.launch.dialects.sim import Sim
from infera_cli.launch.dialects.vllm import Vllm

__all__ = ["DIALECTS", "Dialect", "KvPorts", "dialect"]

DIALECTS: dict[str, Dialect] = {made.name: made for made in (Vllm(), SGLang(), Atom(), Pypto(), Sim())}
"""By the name that people type."""


def dialect(name: str) -> Dialect:
    """The engine of that name. Raises UsageError."""
    if name not in DIALECTS:
        raise UsageError(f"there is no engine {name!r}; choose one of {', '.join(DIALECTS)}, and name it first")
    return DIALECTS[name]
