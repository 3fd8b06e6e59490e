"""How to speak with an engine that a person gave a whole command line for (engines.md §0; infera-wire §9, §10.2).

Where `engines` makes a command from an entry of a file, here the command is the user's, and what a registered worker
needs is read out of it or added. Nothing here is started, asked or registered.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from infera_cli.launch.dialects.arguments import is_given, number_of, value_of, whole
from infera_cli.launch.engines import ONE_SEED

TOPIC = "kv-events"


class KvPorts(NamedTuple):
    """First ports for KV events and for their replay; rank r adds r to each (engines.md §1.8.1)."""

    events: int
    replay: int


class EventSource(NamedTuple):
    """Where an engine publishes, as it says itself: ports of the first rank."""

    events: int
    replay: int | None


class Dialect:
    """What one kind of engine says and understands; each file of this folder fills in its own. Times are seconds."""

    name = ""
    wire_name = "vllm"
    """What its record says as `engine` (rulings 22)."""
    port_flags: tuple[str, ...] = ("--port",)
    host_flags: tuple[str, ...] = ("--host",)
    bind_host: str | None = None
    """What it is told to bind when nobody says; None leaves it to the engine, which then binds everything."""
    model_flags: tuple[str, ...] = ("--model",)
    served_name_flags: tuple[str, ...] = ("--served-model-name",)
    block_size_flags: tuple[str, ...] = ("--block-size",)
    dp_size_flags: tuple[str, ...] = ()
    dp_rank_flags: tuple[str, ...] = ()
    node_rank_flags: tuple[str, ...] = ()
    ready_timeout = 5.0
    stop_grace = 30.0
    publishes_kv = False
    report_flag: str | None = None
    """With it an engine says how much of a prompt it found cached, which is what expectations are held against."""
    sources_path: str | None = None
    """Where it tells its event sources."""

    # ── its command line ─────────────────────────────────────────────────────────────────────────────
    def program(self, python: str) -> list[str]:
        """The words before its flags; `python` is the interpreter it is installed for."""
        return [python, "-m", f"infera_cli.{self.name}"]

    def command(self, args: Sequence[str], *, python: str, port: int, kv: KvPorts | None = None) -> list[str]:
        """The whole command line: `args` verbatim, and what they leave out and a worker needs."""
        added = [] if self.port(args) is not None else [self.port_flags[0], str(port)]
        if self.bind_host is not None and not is_given(args, self.host_flags):
            added += [self.host_flags[0], self.bind_host]
        if kv is not None and self.publishes_kv and not is_given(args, ("--kv-events-config",)):
            added += ["--kv-events-config", json.dumps(self.kv_config(kv), separators=(",", ":"))]
            report = self.report_flag
            if report is not None and not is_given(args, (report, report.replace("--", "--no-", 1))):
                added.append(report)
        return [*self.program(python), *args, *added, *self.further(args)]

    def further(self, args: Sequence[str]) -> list[str]:
        """Further flags that a worker needs and `args` leave out."""
        return []

    def kv_config(self, kv: KvPorts) -> dict[str, Any]:
        """The value of `--kv-events-config`. Only an address with `*` is one that the engine binds; any other
        makes vLLM connect (engines.md §1.8.1)."""
        return {
            "publisher": "zmq", "endpoint": f"tcp://*:{kv.events}", "replay_endpoint": f"tcp://*:{kv.replay}",
            "topic": TOPIC,
        }  # fmt: skip

    def environment(self, port: int) -> dict[str, str]:
        """Variables it needs, where its surroundings do not set them: one hash seed for all processes of all
        workers, since inside a process it is too late for that (R088)."""
        return dict(ONE_SEED)

    # ── what a command line says ─────────────────────────────────────────────────────────────────────
    def port(self, args: Sequence[str]) -> int | None:
        """The HTTP port that `args` name."""
        return number_of(args, self.port_flags)

    def host(self, args: Sequence[str]) -> str | None:
        """The address that it will bind; None means all."""
        return value_of(args, self.host_flags) or self.bind_host

    def model(self, args: Sequence[str]) -> str | None:
        """The name it serves its model by: the first alias, else the path."""
        return value_of(args, self.served_name_flags) or value_of(args, self.model_flags)

    def block_size(self, args: Sequence[str]) -> int | None:
        """The block size that was asked for; the engine may choose another (S64)."""
        return number_of(args, self.block_size_flags)

    def dp_size(self, args: Sequence[str]) -> int:
        """Ranks behind its one address."""
        return number_of(args, self.dp_size_flags) or 1

    def dp_rank(self, args: Sequence[str]) -> int | None:
        """The one rank that this very address is."""
        return number_of(args, self.dp_rank_flags)

    def is_follower(self, args: Sequence[str]) -> bool:
        """Whether this is a further node of an engine whose first node answers."""
        return (number_of(args, self.node_rank_flags) or 0) > 0

    def half(self, args: Sequence[str]) -> str | None:
        """prefill or decode, where it serves halves of requests."""
        return None

    # ── what it says once it runs ────────────────────────────────────────────────────────────────────
    def event_source(self, document: Any) -> EventSource | None:
        """What the answer of `sources_path` says; None where it publishes nothing that can be connected to."""
        return None


def bound_port(endpoint: Any) -> int | None:
    """The port of `tcp://*:5557`; None for an address that the engine connects to, or any other thing."""
    if not isinstance(endpoint, str) or not endpoint.startswith("tcp://"):
        return None
    return whole(endpoint.rpartition(":")[2])
