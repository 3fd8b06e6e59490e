"""ATOM (engines.md §3)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from infera_cli.launch.dialects.arguments import is_given, value_of
from infera_cli.launch.dialects.base import Dialect, KvPorts

_HALVES = {"kv_producer": "prefill", "kv_consumer": "decode"}
DEFAULT_BLOCK = 16
_APART = 10_000
_HIGHEST = 65_535


class Atom(Dialect):
    """`python -m atom.entrypoints.openai_server`. Its HTTP port is `--server-port`; `--port` is an internal one, which
    replicas on one host need distinct too, so it follows the HTTP port unless given.

    It cannot be told on its command line to publish KV events."""

    name = "atom"
    wire_name = "atom"
    port_flags = ("--server-port",)
    bind_host = "0.0.0.0"
    dp_size_flags = ("-dp", "--data-parallel-size")
    stop_grace = 15.0

    def program(self, python: str) -> list[str]:
        """See Dialect."""
        return [python, "-m", "atom.entrypoints.openai_server"]

    def command(self, args: Sequence[str], *, python: str, port: int, kv: KvPorts | None = None) -> list[str]:
        """See Dialect."""
        words = super().command(args, python=python, port=port, kv=kv)
        return words if is_given(args, ("--port",)) else [*words, "--port", str(_internal(self.port(args) or port))]

    def block_size(self, args: Sequence[str]) -> int | None:
        """See Dialect; it does not say on its metrics page which one it took."""
        return super().block_size(args) or DEFAULT_BLOCK

    def half(self, args: Sequence[str]) -> str | None:
        """See Dialect; the role is inside `--kv-transfer-config`."""
        try:
            config = json.loads(value_of(args, ("--kv-transfer-config",)) or "{}")
        except (ValueError, RecursionError):
            return None
        return _HALVES.get(str(config.get("kv_role"))) if isinstance(config, dict) else None


def _internal(http: int) -> int:
    return http + _APART if http + _APART <= _HIGHEST else http - _APART
